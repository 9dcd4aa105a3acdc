package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func keyedTask(key, id string) *task { return &task{m: &Message{ID: id, Key: []byte(key)}} }

// ready returns the ids that are ready, and takes them.
func (d *dispatcher) takeAll() (ids []string) {
	for t := d.take(); t != nil; t = d.take() {
		ids = append(ids, t.m.ID)
	}
	return ids
}

func TestDispatcherHoldsBackOneKey(t *testing.T) {
	t.Parallel()
	d := newDispatcher(10)
	a1, a2, b1 := keyedTask("a", "a1"), keyedTask("a", "a2"), keyedTask("b", "b1")
	for _, task := range []*task{a1, a2, b1, keyedTask("a", "a3"), keyedTask("", "x"), keyedTask("", "y")} {
		d.add(task)
	}
	require.Equal(t, []string{"a1", "b1", "x", "y"}, d.takeAll())
	d.settled(b1)
	require.Empty(t, d.takeAll())
	d.again(a1, 0)
	require.Equal(t, []string{"a1"}, d.takeAll(), "its key stays occupied")
	d.settled(a1)
	require.Equal(t, []string{"a2"}, d.takeAll())
	d.settled(a2)
	require.Equal(t, []string{"a3"}, d.takeAll())
}

func TestDispatcherForgetsKeys(t *testing.T) {
	t.Parallel()
	d := newDispatcher(1)
	for range 100 {
		one := keyedTask("a", "a")
		d.add(one)
		require.NotNil(t, d.take())
		d.settled(one)
	}
	require.Empty(t, d.keys)
}

func TestDispatcherRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(2)
		n, err := d.room(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		one := keyedTask("a", "a1")
		d.add(one)
		d.add(keyedTask("a", "a2"))
		require.NotNil(t, d.take())
		roomy := make(chan int, 1)
		go func() {
			n, _ := d.room(t.Context())
			roomy <- n
		}()
		synctest.Wait()
		require.Empty(t, roomy, "there was none")
		d.settled(one)
		require.Equal(t, 1, <-roomy)

		d.add(keyedTask("b", "b1"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = d.room(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A fetch for each settled message would cost a wake-up for each: it waits
// until half of the room is free, or until the workers have nothing to do.
func TestDispatcherFetchesInBulk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(10)
		roomy := make(chan int, 1)
		look := func() {
			go func() {
				n, _ := d.room(t.Context())
				roomy <- n
			}()
			synctest.Wait()
		}
		for range 10 {
			d.add(keyedTask("", "x"))
		}
		look()
		for range 4 {
			d.settled(d.take())
			synctest.Wait()
			require.Empty(t, roomy)
		}
		d.settled(d.take())
		require.Equal(t, 5, <-roomy, "half is free")

		for range 5 {
			d.add(keyedTask("", "x"))
		}
		one := d.take()
		d.settled(one)
		look()
		for len(d.ready) > 1 {
			require.NotNil(t, d.take())
			synctest.Wait()
			require.Empty(t, roomy)
		}
		require.NotNil(t, d.take())
		require.Equal(t, 1, <-roomy, "the workers have nothing to do")
	})
}

func TestDispatcherDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDispatcher(2)
		one, two := keyedTask("a", "a1"), keyedTask("b", "b1")
		d.add(one)
		d.add(two)
		require.Len(t, d.takeAll(), 2)
		d.again(one, time.Second)
		d.again(two, time.Minute)
		held, delayed := d.counts()
		require.Equal(t, []int{2, 2}, []int{held, delayed})

		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a1"}, d.takeAll())
		held, delayed = d.counts()
		require.Equal(t, []int{2, 1}, []int{held, delayed})

		require.Empty(t, d.close(), "they have keys")
		held, delayed = d.counts()
		require.Equal(t, []int{2, 0}, []int{held, delayed})
		d.again(one, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, d.takeAll(), "it is closed")
	})
}
