package main

// mutants are the promises of docs/guarantees.md, each broken in the place that
// upholds it.
var mutants = []mutant{
	// I1, nothing lost
	{"ack although the inbox returned an error", "consumer/attempt.go",
		"	res := t.judge(ctx, err)\n", "	res := t.judge(ctx, err)\n	if res.fate == away {\n		res = result{fate: settled, verdicts: make([]Verdict, len(ms))}\n	}\n",
		"./consumer", "Outage|Unknown"},
	{"an unknown verdict is settled", "consumer/attempt.go",
		"if v != Processed && v != Duplicate && v != Mismatch {", "if false {", "./consumer", "Verdict"},
	{"a commit without an answer counts as committed", "inbox/turn.go",
		"	case !errors.As(err, &pgErr):\n		return unknown(err)\n	case isSlowHandler(pgErr):", "	case !errors.As(err, &pgErr):\n		return nil\n	case isSlowHandler(pgErr):",
		"./internal/e2e", "TestCommitRequestLost|TestCommitReplyLost"},
	{"no row counts as a duplicate", "inbox/claim.go",
		"if !c.mine[i] && !c.there[i] {", "if !c.mine[i] && !c.there[i] && false {", "./inbox", "NoRow"},
	{"a duplicate does not wait for the standby", "inbox/turn.go",
		"	case len(mine) == 0:\n", "	case false:\n", "./inbox", "Standby"},
	{"a shutdown cuts the commit short", "inbox/turn.go",
		"s.limit.Context(context.WithoutCancel(ctx), limit)", "s.limit.Context(ctx, limit)", "./inbox", "Shutdown"},

	// I2, nothing doubled
	{"no unique key", "migrations/sql/001_processed_messages.sql",
		"primary key (subscriber_id, message_id)", "unique (subscriber_id, message_id, processed_at)", "./inbox", "OneEffect"},
	{"ids unsorted", "inbox/sql.go",
		"order by id collate \"C\"` + once + `", "` + once + `", "./inbox", "OppositeOrder"},
	{"the second copy in a batch is new", "inbox/claim.go",
		"f(n, m, i == first && c.mine[i])", "f(n, m, c.mine[i])", "./inbox", "TestBatch$"},
	{"the hash is ignored", "inbox/claim.go",
		"return len(a) > 0 && len(b) > 0 && !bytes.Equal(a, b)", "return false", "./inbox", "Mismatch"},
	{"a claim ahead outlives the session", "inbox/conn.go",
		"if !s.pg().IsClosed() && s.pg().TxStatus() == 'I' && !s.pg().IsBusy() {", "if true {", "./inbox", "Ahead"},

	// I3, no trace
	{"a transaction that was put in the place of another", "inbox/turn.go",
		"	case suspect:\n", "	case false:\n", "./inbox", "TransactionEnded"},
	{"an error that was swallowed", "inbox/guard.go",
		"	case (pg.IsClosed() || pg.TxStatus() == 'E') && err != nil:", "	case false:", "./inbox", "Swallowed"},
	{"a commit that is hidden in a batch", "inbox/guard.go",
		"case g.several && reachesOthers(sql, args):", "case false:", "./inbox", "HiddenCommits"},
	{"a plain commit is sent", "inbox/guard.go",
		"	case endsTransaction(sql):\n", "	case false:\n", "./inbox", "Refused|Ended"},
	{"a queued statement that could not be sent is forgotten", "inbox/queue.go",
		"		g.breaks(err)\n", "		_ = err\n", "./inbox", "TestQueueThatCannotBeSent"},
	{"what is queued comes last", "inbox/tx.go",
		"	if err = t.guard.flush(ctx, t.conn); err != nil {\n		return err\n	}\n	flushed = true\n", "	flushed = true\n", "./inbox", "TestQueueIsSeen"},
	{"blame for the next message of the batch", "inbox/guard.go",
		"if g.message != nil && g.broken == nil {", "if false {", "./inbox", "Blames"},

	// I4, nothing dropped
	{"set aside without its row", "consumer/aside.go",
		"verdict, err := r.failures.SetAside(ctx, r.cfg.Subscriber, *t.aside)", "verdict, err := SetAside, error(nil)", "./internal/e2e", "TestUnidentifiedIsSetAside"},
	{"a failed message is settled", "consumer/turn.go",
		"	case res.fate == failed:\n		s.failed(ctx, t, res)\n", "	case res.fate == failed:\n		s.acknowledge(ctx, b.tasks, b.ms, []Verdict{Processed}, acks)\n", "./consumer", "Retry|Attempt|SetAside"},
	{"a dead letter that was returned counts as published", "brokers/rabbitmq/deadletter.go",
		"		if !ok { // closed with the channel\n", "		if r.ReplyCode > 0 || !ok {\n", "./brokers/rabbitmq", "DeadLetter"},

	// I5, order
	{"one key, two workers", "consumer/dispatch.go",
		"			line.waiting = append(line.waiting, t)\n			return\n", "			line.out++\n", "./consumer", "Order|Dispatcher"},
	{"a batch goes back in another order", "consumer/dispatch.go",
		"slices.Insert(line.waiting, 0, t)", "slices.Insert(line.waiting, len(line.waiting), t)", "./inbox", "UnderFire"},
	{"KeepOrder looks for nothing", "consumer/order.go",
		"if err == nil && behind {", "if behind && false {", "./inbox", "KeepOrder"},

	// I6, no overtaking
	{"an old stream's acknowledgement is let through", "brokers/memory/queue.go",
		"	if q.owner != s {\n		q.mu.Unlock()\n		return false\n	}\n", "", "./brokers/memory", "Contract"},
	{"multiple covers what is not settled", "brokers/rabbitmq/ack.go",
		"		if tag > unsettled {\n", "		if false {\n", "./brokers/rabbitmq", "Contract|Ack"},
	{"the watermark is one too high", "brokers/kafka/watermark.go",
		"		return w.offsets[w.head]\n", "		return w.offsets[w.head] + 1\n", "./brokers/kafka", "Watermark|Gap"},
	{"the highest settled offset is committed", "brokers/kafka/watermark.go",
		"	if i > 0 {\n		return false\n	}\n", "	for j := range i {\n		w.settled[w.head+j] = true\n	}\n", "./internal/e2e", "TestKafkaKilledWithAGap"},
	{"aborted transactions are read", "brokers/kafka/transactions.go",
		"func (f *filter) apply(b *batch) {\n", "func (f *filter) apply(b *batch) {\n	if f != nil {\n		return\n	}\n", "module internal/kfaketest", "TestReadCommitted"},

	// I7, outage is not failure
	{"attempts are counted in an outage", "consumer/attempt.go",
		"	case says(ErrOutage): // also a handler that hung because of it\n		return result{fate: away, err: err, under", "	case says(ErrOutage): // also a handler that hung because of it\n		return result{fate: failed, err: err, under",
		"./consumer", "Outage"},
	{"contention is a failure", "consumer/attempt.go",
		"		return result{fate: contended, err: err}\n", "		return result{fate: failed, err: err}\n", "./consumer", "Contention"},
	{"all workers probe", "consumer/gate.go",
		"		if g.probe == 0 {\n", "		if true {\n", "./consumer", "Gate|Probe|Outage"},
	{"a shutdown counts as a failure", "consumer/attempt.go",
		"	case ctx.Err() != nil:\n		return result{fate: cut, err: err}\n	case says", "	case says", "./consumer", "Drain|Shutdown"},
	{"a message takes the database away for ever", "consumer/turn.go",
		"if t.outages++; t.outages > outageLimit {", "if false {", "./consumer", "TestOutageUnderOneMessage"},

	// I8, bounded
	{"the buffer has no bound", "consumer/dispatch.go",
		"		n := d.limit - d.held\n", "		n := d.limit\n", "./consumer", "TestBufferLimits|TestDispatcherRoom"},
	{"a batch has no bound", "consumer/batch.go",
		"return len(b.tasks) >= limit", "return false", "./consumer", "TestBatch"},

	// what surrounds them
	{"an innocent message is blamed for a crash", "consumer/crash.go",
		"	w.alone.Lock()\n	defer w.alone.Unlock()\n	if res, ok := s.note(ctx, b.tasks, true); !ok {", "	if res, ok := s.note(ctx, b.tasks, true); !ok {", "./inbox", "TestCrashLoopSuspectRunsAlone"},
	{"crashes are not counted", "consumer/crash.go",
		"if t.crashes >= w.limit {", "if false {", "./inbox", "TestCrashLoopInBatches"},
	{"late messages are applied", "consumer/late.go",
		"age > r.cfg.Horizon {", "age > 1000*r.cfg.Horizon {", "./inbox", "TestLate"},
	{"a retry leaves its row in failed_messages", "inbox/retry.go",
		"if err = s.remove(ctx, f); err == nil {", "if err == nil {", "./inbox", "SetAside|Retry|Aside"},
}
