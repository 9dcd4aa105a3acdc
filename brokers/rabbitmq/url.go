package rabbitmq

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

var errURLEncoding = errors.New("rabbitmq: Config.URL cannot be parsed: it must read amqp://user:password@host:port/vhost, and every reserved character (such as @ : / ? # %) in user, password or vhost must be percent-encoded; net/url.UserPassword does that")

// parseURL parses Config.URL. Its errors never repeat any part of the URL that
// may belong to the password, which the errors of net/url do.
func parseURL(raw string) (amqp.URI, error) {
	if raw == "" {
		return amqp.URI{}, errors.New("rabbitmq: Config.URL is empty: it must read amqp://user:password@host:port/vhost")
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return amqp.URI{}, errors.New("rabbitmq: Config.URL has no scheme: it must begin with amqp:// or amqps://")
	}
	if s := strings.ToLower(scheme); s != "amqp" && s != "amqps" {
		return amqp.URI{}, fmt.Errorf("rabbitmq: Config.URL has the scheme %q: it must be amqp or amqps", scheme)
	}
	u, err := url.Parse(raw)
	// A reserved character that is not encoded ends the host too early: what
	// follows, with the rest of the password, would be taken for a path.
	_, afterHost, _ := strings.Cut(strings.NewReplacer("?", "/", "#", "/").Replace(rest), "/")
	if err != nil || u.Fragment != "" || strings.ContainsAny(raw, " \t\r\n") || strings.Contains(afterHost, "@") {
		return amqp.URI{}, errURLEncoding
	}
	if u.Hostname() == "" {
		return amqp.URI{}, errors.New("rabbitmq: Config.URL has no host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return amqp.URI{}, fmt.Errorf("rabbitmq: Config.URL has the port %s: it must be between 1 and 65535", port)
		}
	}
	return parseParameters(raw, u.Query())
}

// parseParameters parses a URL of which only the parameters may be wrong. They
// hold nothing secret.
func parseParameters(raw string, parameters url.Values) (amqp.URI, error) {
	for _, mechanism := range parameters["auth_mechanism"] {
		switch strings.ToUpper(mechanism) {
		case "PLAIN", "AMQPLAIN", "EXTERNAL":
		default:
			return amqp.URI{}, fmt.Errorf("rabbitmq: Config.URL has the auth_mechanism %q: it must be plain, amqplain or external", mechanism)
		}
	}
	uri, err := amqp.ParseURI(raw)
	if err != nil {
		return amqp.URI{}, fmt.Errorf("rabbitmq: Config.URL: %w", err)
	}
	return uri, nil
}

func address(uri amqp.URI) string {
	return net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
}
