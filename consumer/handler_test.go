package consumer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/consumer"
)

type order struct{ Account, Amount int }

func TestJSON(t *testing.T) {
	t.Parallel()
	var got order
	m := &message{ID: "m1", Body: []byte(` {"account": 1, "amount": 2, "unknown": 3} `)}
	h := consumer.JSON(func(ctx context.Context, tx *Tx, o order) error {
		got = o
		require.Same(t, m, consumer.MessageFrom(ctx))
		return errors.New("from the handler")
	})
	require.Nil(t, consumer.MessageFrom(t.Context()))
	err := h.Handle(t.Context(), nil, m)
	require.EqualError(t, err, "from the handler")
	require.False(t, consumer.IsPermanent(err))
	require.Equal(t, order{1, 2}, got)
}

func TestJSONThatCannotBeDecodedIsPermanent(t *testing.T) {
	t.Parallel()
	called := false
	h := consumer.JSON(func(context.Context, *Tx, order) error { called = true; return nil })
	for name, body := range map[string][]byte{
		"empty":     {},
		"tombstone": nil,
		"syntax":    []byte(`{"account": `),
		"type":      []byte(`{"account": "one"}`),
		"overflow":  []byte(`{"account": 1e400}`),
		"trailing":  []byte(`{"account": 1} {"account": 2}`),
		"text":      []byte(`hello`),
	} {
		err := h.Handle(t.Context(), nil, &message{Body: body})
		require.True(t, consumer.IsPermanent(err), name)
		require.ErrorContains(t, err, "consumer_test.order", name)
	}
	err := h.Handle(t.Context(), nil, &message{Body: []byte(" null\n")})
	require.True(t, consumer.IsPermanent(err), "null decodes into anything, and says nothing")
	require.False(t, called)
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	o, err := consumer.DecodeJSON[*order](&message{Body: []byte(`{"account": 1}`)})
	require.NoError(t, err)
	require.Equal(t, &order{Account: 1}, o)
	_, err = consumer.DecodeJSON[order](&message{})
	require.True(t, consumer.IsPermanent(err))
}

func TestMux(t *testing.T) {
	t.Parallel()
	named := func(name string) consumer.Handler[*Tx] {
		return handler(func(context.Context, *Tx, *message) error { return errors.New(name) })
	}
	x := consumer.Mux[*Tx]{
		Handlers: map[string]consumer.Handler[*Tx]{"paid": named("paid"), "": named("untyped")},
		Unknown:  consumer.FailUnknown,
	}
	require.NoError(t, x.Validate())
	require.EqualError(t, x.Handle(t.Context(), nil, &message{Type: "paid"}), "paid")
	require.EqualError(t, x.Handle(t.Context(), nil, &message{}), "untyped")

	err := x.Handle(t.Context(), nil, &message{Type: "Paid"})
	require.ErrorIs(t, err, consumer.ErrUnknownType)
	require.ErrorContains(t, err, `"Paid"`)
	require.True(t, consumer.IsPermanent(err))

	x.Unknown = consumer.SkipUnknown
	require.NoError(t, x.Handle(t.Context(), nil, &message{Type: "Paid"}))
	require.EqualError(t, x.Handle(t.Context(), nil, &message{Type: "paid"}), "paid")
}

func TestMuxValidate(t *testing.T) {
	t.Parallel()
	err := consumer.Mux[*Tx]{}.Validate()
	require.ErrorContains(t, err, "Mux.Handlers is empty")
	require.ErrorContains(t, err, "FailUnknown or SkipUnknown")
	err = consumer.Mux[*Tx]{
		Handlers: map[string]consumer.Handler[*Tx]{"a": nil, "b": handler(nil), "c": handler(effect)},
		Unknown:  99,
	}.Validate()
	require.ErrorContains(t, err, `Mux.Handlers["a"] is nil`)
	require.ErrorContains(t, err, `Mux.Handlers["b"] is nil`)
	require.NotContains(t, err.Error(), `"c"`)
	require.ErrorContains(t, err, "FailUnknown or SkipUnknown")
}

func TestMiddleware(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fixture) {
		around := func(name string) consumer.Middleware[*Tx] {
			return func(next consumer.Handler[*Tx]) consumer.Handler[*Tx] {
				return handler(func(ctx context.Context, tx *Tx, m *message) error {
					if err := tx.Do(name + " before"); err != nil {
						return err
					}
					return errors.Join(next.Handle(ctx, tx, m), tx.Do(name+" after"))
				})
			}
		}
		f.cfg.Middleware = []consumer.Middleware[*Tx]{around("outer"), around("inner")}
		attempts := 0
		f.cfg.Handler = handler(func(ctx context.Context, tx *Tx, m *message) error {
			if attempts++; attempts == 1 {
				return errors.New("the middleware's effects go with the handler's")
			}
			return effect(ctx, tx, m)
		})
		f.broker.Publish(msg("a"))
		f.start()
		f.finish()
		require.Equal(t, []string{"outer before", "inner before", "a", "inner after", "outer after"}, f.inbox.committed())
	})
}
