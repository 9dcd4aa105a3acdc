package migrations_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ackafter/ackafter/migrations"
)

// A worker brings the tables up to date when it starts. Many may start at once.
func ExampleApply() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	if err := migrations.Apply(ctx, pool, migrations.Config{}); err != nil {
		log.Fatal(err)
	}
}

// A worker that may not create tables leaves that to a migration tool, and only checks.
func ExampleCheck() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	if err := migrations.Check(ctx, pool, migrations.DefaultSchema); err != nil {
		log.Fatal(err)
	}
}

// Write the files to a directory for a tool that runs on the command line, in a schema of your own.
func ExampleFS() {
	files, err := migrations.FS("inbox")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.CopyFS("migrations/inbox", files); err != nil {
		log.Fatal(err)
	}
}
