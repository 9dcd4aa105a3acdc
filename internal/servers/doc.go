// Package servers finds and starts the servers which the tests, the examples
// and the benchmarks need.
//
// Lookup, DatabaseURL, AMQPURL and KafkaBrokers find the shared servers, which
// `make test`, `make demo` and `make services` provide. StartPostgreSQL,
// StartRabbitMQ, StartKafka and StartPgBouncer start a private server for a test
// which has to stop, kill or restart it: on loopback, on a free port, with its
// data below a directory of the caller. A private server ends with the process
// that started it, even when that process is killed, unless its configuration
// says Detached.
package servers
