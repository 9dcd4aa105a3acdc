package rabbitmq_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/ackafter/ackafter/brokers/rabbitmq"
	"github.com/ackafter/ackafter/consumer"
)

// Most workers need no more than this; the source goes into
// consumer.Config.Source. A mistake in the URL comes out of consumer.New.
func ExampleQueue() {
	source := rabbitmq.Queue(os.Getenv("AMQP_URL"), "orders")
	_ = consumer.Config[any]{Source: source}

	fmt.Println(rabbitmq.Queue("amqp://localhost:99999", "orders").Validate())
	// Output: rabbitmq: Config.URL has the port 99999: it must be between 1 and 65535
}

// A worker that declares its own queue, with a place for what the broker
// gives up on, and an order per customer.
func ExampleNew() {
	source, err := rabbitmq.New(rabbitmq.Config{
		URL:      "amqps://billing:secret@rabbit.example.com/shop",
		Queue:    "billing.orders",
		Prefetch: 100,
		Key: func(d *amqp.Delivery) []byte {
			customer, _ := d.Headers["customer"].(string)
			return []byte(customer)
		},
		Declare: &rabbitmq.Topology{
			Type:               amqp.QueueTypeQuorum,
			DeliveryLimit:      50,
			DeadLetterExchange: "billing.dead",
			Bindings:           []rabbitmq.Binding{{Exchange: "orders", Key: "order.placed"}},
		},
		ConnectionName: "billing on " + os.Getenv("HOSTNAME"),
		AMQP: amqp.Config{
			Heartbeat:       20 * time.Second,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(source.System(), source.Validate())
	// Output: rabbitmq <nil>
}

// What is set aside for good goes to the queue's dead-letter exchange. It must
// exist, and route to a queue.
func ExampleNewDeadLetter() {
	dead, err := rabbitmq.NewDeadLetter(rabbitmq.DeadLetterConfig{
		URL:      "amqp://rabbit.example.com/shop",
		Exchange: "billing.dead",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = consumer.Config[any]{DeadLetter: dead}
}
