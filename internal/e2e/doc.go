// Package e2e holds the tests of the whole library, with the real runner, the
// real inbox and the real adapters, on the real PostgreSQL and RabbitMQ: while
// processes are killed, servers are stopped and networks fail.
//
// harness_test.go has what every test starts from, child_test.go the worker
// process that some of them kill, feed_test.go what is the same for RabbitMQ and
// Kafka.
package e2e
