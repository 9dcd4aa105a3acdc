package consumer

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestSemaphoreServesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(1)
		require.True(t, s.acquire(nil))
		require.False(t, s.crowded())
		served := make(chan int, 10)
		for i := range 10 {
			go func() {
				if s.acquire(nil) {
					served <- i
				}
			}()
			synctest.Wait()
		}
		require.True(t, s.crowded())
		for i := range 10 {
			require.Empty(t, served)
			s.release()
			require.Equal(t, i, <-served)
		}
		require.False(t, s.crowded())
		s.release()
	})
}

func TestSemaphoreStops(t *testing.T) {
	t.Parallel()
	s := newSemaphore(1)
	require.True(t, s.acquire(nil))
	stop := make(chan struct{})
	close(stop)
	require.False(t, s.acquire(stop))
	require.False(t, s.crowded())
}

func TestSemaphoreWithoutLimit(t *testing.T) {
	t.Parallel()
	s := newSemaphore(0)
	for range 100 {
		require.True(t, s.acquire(nil))
	}
	require.False(t, s.crowded())
	s.release()
}
