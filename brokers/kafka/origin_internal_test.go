package kafka

import (
	"fmt"
	"testing"
)

func TestMark(t *testing.T) {
	t.Parallel()
	for _, m := range []mark{{}, {testID, 0}, {testID, 3}, {topicID{}, 7}} {
		id, n := parseMark(m.String())
		if id != m.id.String() || n != m.partitions {
			t.Errorf("%q says %q and %d", m, id, n)
		}
	}
	for _, foreign := range []string{"", " ", "by somebody", "topic-id=x partitions=3", "ackafter partitions=-1", "ackafter topic-id"} {
		if id, n := parseMark(foreign); id != "" || n != 0 {
			t.Errorf("%q says %q and %d", foreign, id, n)
		}
	}
}

// What the group has committed tells which partitions are new to it.
func TestJudge(t *testing.T) {
	t.Parallel()
	none := stored{at: -1, epoch: -1}
	mine := func(n int) stored { return stored{at: 5, epoch: 2, metadata: mark{testID, n}.String()} }
	foreign := stored{at: 5, epoch: 0, metadata: "by somebody"}
	other := stored{at: 5, epoch: 2, metadata: mark{topicID{9}, 1}.String()}
	for _, c := range []struct {
		name  string
		all   []stored
		added string // which of them
		mark  int
		epoch int32 // of the first
	}{
		{"nothing", []stored{none, none}, "[]", 2, -1},
		{"one has not come to it", []stored{mine(2), none}, "[]", 2, 2},
		{"one is new", []stored{mine(1), none}, "[1]", 1, 2},
		{"one was new", []stored{mine(2), mine(1), none}, "[1 2]", 1, 2},
		{"somebody else's", []stored{foreign, none}, "[0 1]", 0, -1},
		{"another topic's", []stored{other, none}, "[]", 2, 2},
		{"it has grown since it was looked at", []stored{none, none, none}, "[2]", 2, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := map[int]stored{}
			for i, s := range c.all {
				all[i] = s
			}
			offsets := judge(topicState{name: "t", id: testID, partitions: 2}, all)
			added := []int{}
			for i := range c.all {
				o := offsets[i]
				if o.added {
					added = append(added, i)
				}
				if o.mark != (mark{testID, c.mark}) || (o.other != "") != (c.all[i] == other) {
					t.Errorf("partition %d: %+v", i, o)
				}
			}
			if got := fmt.Sprint(added); got != c.added || offsets[0].epoch != c.epoch {
				t.Errorf("new are %s, want %s; the epoch is %d, want %d", got, c.added, offsets[0].epoch, c.epoch)
			}
		})
	}
}

// An epoch is committed only where it is known: not behind a gap.
func TestEpochs(t *testing.T) {
	t.Parallel()
	e := epochs{{9, 9, 1}}
	for _, b := range []batch{{base: 10, last: 14, epoch: 1}, {base: 15, last: 19, epoch: 2}, {base: 30, last: 34, epoch: 2}, {base: 35, last: 39, epoch: 2}} {
		e = e.add(&b)
	}
	for at, want := range map[int64]int32{8: -1, 9: 1, 14: 1, 15: 2, 19: 2, 20: -1, 29: -1, 30: 2, 39: 2, 40: -1} {
		if got := e.of(at); got != want {
			t.Errorf("the epoch of %d is %d, want %d", at, got, want)
		}
	}
	if e = e.from(35); len(e) != 1 || e.of(35) != 2 {
		t.Errorf("left are %v", e)
	}
}
