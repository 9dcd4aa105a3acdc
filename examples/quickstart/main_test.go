package main

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ackafter/ackafter/internal/pgtest"
)

func TestQuickstart(t *testing.T) { // not parallel: it replaces os.Stdout
	pgtest.URL(t) // skips a short run, and fails without a server
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	os.Stdout = w

	main()

	require.NoError(t, w.Close())
	printed, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "6 deliveries of 3 payments: 3 payments are booked, 3 times in all\n", string(printed))
}
