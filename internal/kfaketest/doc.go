// Package kfaketest tests brokers/kafka with kfake, a Kafka inside the process
// that can be made to misbehave. It is a module of its own, so that kfake never
// reaches the users' go.mod.
package kfaketest
