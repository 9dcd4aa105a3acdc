package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if isChild() {
		if err := childMain(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Every case has the right result, with a few messages.
func TestCases(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	for _, broker := range []string{"rabbitmq", "kafka"} {
		o := options{cases: caseNames(), workers: []string{"2"}, scale: 0.001}
		for _, c := range selected(o, broker) {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				db, err := openDatabase(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer db.close()
				b, err := openBroker(broker)
				if err != nil {
					t.Fatal(err)
				}
				c.OldRows, c.Warm = min(c.OldRows, 1000), 20
				m, err := measure(ctx, db, b, c, o)
				if err != nil {
					t.Fatal(err)
				}
				if m.PerSecond <= 0 || m.Allocs <= 0 || m.PeakMemory <= 0 || (c.Rate > 0) != (m.P99 > 0) {
					t.Errorf("%+v", m)
				}
				if err := db.dropOldRows(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A wrong result is no figure.
func TestAuditFails(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	db, err := openDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	schema, err := db.prepare(t.Context(), benchCase{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.drop(context.Background(), schema) }()
	if err := db.audit(t.Context(), schema, expected{effects: 1}); err == nil {
		t.Error("an effect is missing, and nobody has noticed")
	}
}
