package main

import (
	"context"
	"fmt"
	"io"
)

// demo runs the control, which is expected to fail, and then the real drill.
// Both get the same orders.
func demo(ctx context.Context, o options, out io.Writer) (int, error) {
	fmt.Fprintln(out, "First without the inbox: begin, apply, commit, acknowledge.")
	o.inbox = false
	control, err := runDrill(ctx, o, out)
	if err != nil {
		return exitBroken, err
	}
	fmt.Fprintf(out, "%s\n\nNow with the inbox: the claim of each message is committed together with its effects.\n", control)
	o.inbox = true
	guarded, err := runDrill(ctx, o, out)
	if err != nil {
		return exitBroken, err
	}
	fmt.Fprintf(out, "%s\n\n", guarded)
	if control.doubled == 0 || !guarded.clean() {
		fmt.Fprintln(out, "This is not what should have happened: the control must double orders, and the real run must not.")
		return exitFindings, nil
	}
	fmt.Fprintf(out, "Without the inbox, %d of %d orders moved their money more than once, because workers died between commit and acknowledgement and the producer sent some orders again.\n",
		control.doubled, control.sent)
	fmt.Fprintf(out, "With it, workers died just the same and %d deliveries were repeated, yet each of the %d orders moved its money exactly once.\n",
		guarded.duplicates, guarded.sent)
	return exitClean, nil
}
