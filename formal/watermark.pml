/* The durable low-watermark W: from cuts and reports to collection, acknowledgement and publication.
 *
 * Three workers run a line: s -> q -> r => t. Worker 0 has the source s and the sink t, worker 1 has q, which keeps nothing,
 * worker 2 has r, which logs what it sends to t; the other edges are not logged, and nothing is kept in memory. An epoch has a
 * record or none, chosen anew whenever it is read: so nothing is taken to repeat, and the rules are those of Figure 6. What is
 * published must be what s has read in the end.
 * Separate steps are: a cut, its write, its report; W solved, written, announced, heard by each worker. A round is one step
 * here (rounds.pml has its interleavings). Bounds are numbers: b stands for the epochs below b.
 */

#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define TOP EPOCHS

hidden byte no_record_is_lost, no_record_comes_twice, everything_ends, decisions_keep_what_was_promised,
    watermarks_are_durable_first, watermarks_can_be_restored, watermarks_are_consistent, cuts_are_at_what_is_complete,
    reports_wait_for_their_segment, logs_are_collected;
#define MUST(invariant, condition) assert(invariant || (condition))

#define BIT(e) (1 << (e))
#define BELOW(b) ((1 << (b)) - 1)
#define UPTO(mask) ((mask) >= 4 -> 3 : ((mask) >= 2 -> 2 : (mask)))
#define LAST(cuts, b) UPTO((cuts) & BELOW(b))
#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define MOST(a, b) ((a) > (b) -> (a) : (b))
#define ALIVE(w) (((dead) & (1 << (w))) == 0)
#define s 0
#define q 1
#define r 2
#define t 3
#define HOME(p) ((p) == t -> 0 : (p)) /* the worker */

byte upto[4];  /* what each has completed, and acted on */
byte rows[4];  /* the epochs of which each has had a record; of s: those it has read */
byte way[3];   /* by sender: what is sent and not taken */
byte log;      /* of r, in memory */
/* Durable. By processor, a bit for each bound above 0; nothing of q. */
byte cuts[4];
byte saved[4];
byte saved_log;
byte writing[3]; /* by worker, the processor and the bound of the cut that is being written, as p * 4 + bound; 0: none */
/* On the way to the monitor: bound of a report of p, of this generation or of an earlier one; 0: none. */
byte told[4]; /* q and r; of s and t it hears at once */
bool stale[4];
/* The monitor. */
byte known[4];   /* of s, r, t: cuts, a bit each; of q: a bound */
byte journal[2], solved[2], announced[2]; /* W of s, q and r, and W of t */
bool monitor_writes;
/* What workers have heard of W. */
byte heard2[2]; /* worker 2; worker 0 hears of it at once */
byte acknowledged, published;
byte faults = FAULTS;
byte dead;

hidden byte f[4], p, most, held, changed;
hidden byte live[4];

inline lower() { /* p to the largest that it can be restored to within `most` */
    changed = 1;
    if
    :: !ALIVE(HOME(p)) && p != q -> f[p] = LAST(cuts[p], most)
    :: else ->
        f[p] = LEAST(f[p], most);
#ifdef DROP_ACTING_ON_COMPLETENESS_COUNTS
        if :: live[p] && UPTO(rows[p]) > f[p] -> fall() :: else fi
#else
        if :: live[p] && upto[p] > f[p] -> fall() :: else fi
#endif
    fi
}

inline fall() {
    changed = 1;
    live[p] = 0;
    f[p] = LEAST(f[p], upto[p])
}

inline descend() {
    p = 0;
    do
    :: p < 4 ->
        live[p] = ALIVE(HOME(p));
        f[p] = (live[p] -> TOP : (p == q -> known[q] : LAST(cuts[p], TOP)));
        p++
    :: else -> break
    od;
    do
    :: changed = 0; p = 1;
        do
        :: p < 4 -> /* the edge from p - 1 */
            if :: !live[p - 1] && live[p] && UPTO(rows[p]) > f[p - 1] -> fall() :: else fi;
            if :: f[p] > f[p - 1] -> most = f[p - 1]; lower() :: else fi;
#ifdef DROP_WHAT_IS_DISCARDED_MUST_BE_HELD
            held = TOP;
#else
            held = (p == t -> TOP : (live[p] -> (ALIVE(HOME(p - 1)) -> TOP : upto[p]) : f[p]));
#endif
            p--;
            if
            :: live[p] && UPTO(rows[p]) > held -> fall()
            :: !live[p] && f[p] > held -> most = held; lower()
            :: else
            fi;
            p = p + 2
        :: else -> break
        od;
        if :: !changed -> break :: else fi
    od
}

inline round() {
    d_step {
        descend();
        MUST(decisions_keep_what_was_promised, f[s] >= announced[0] && f[q] >= announced[0] && f[r] >= announced[0] && f[t] >= announced[1]);
        MUST(no_record_is_lost, f[s] >= acknowledged);
        /* state */
        p = 0;
        do
        :: p < 4 ->
            if
            :: !live[p] ->
                upto[p] = f[p];
                if :: !ALIVE(HOME(p)) && p != s && p != q -> rows[p] = saved[p] :: else fi;
                rows[p] = rows[p] & BELOW(f[p]);
                saved[p] = saved[p] & BELOW(f[p]);
#ifndef DROP_WHAT_A_DECISION_LEAVES_OUT_IS_VOID
                cuts[p] = cuts[p] & BELOW(f[p])
#endif
            :: else
            fi;
            p++
        :: else -> break
        od;
        if
        :: !live[r] ->
            if :: !ALIVE(2) -> log = saved_log :: else fi;
            log = log & BELOW(f[r]); saved_log = saved_log & BELOW(f[r])
        :: else
        fi;
        /* queues */
        p = 0;
        do
        :: p < 2 ->
            if
            :: !ALIVE(HOME(p)) || !ALIVE(HOME(p + 1)) -> way[p] = 0
            :: else ->
                if :: !live[p] -> way[p] = way[p] & BELOW(f[p]) :: else fi;
                if :: !live[p + 1] -> way[p] = way[p] & ~BELOW(f[p + 1]) :: else fi
            fi;
            p++
        :: else -> break
        od;
        if
        :: !ALIVE(2) || !live[t] -> way[r] = log & ~BELOW(upto[t]) /* from the log; who stays refuses what it had */
        :: else -> if :: !live[r] -> way[r] = way[r] & BELOW(f[r]) :: else fi
        fi;
        /* the monitor: F*' = {f' within f}; who stays has to report again */
        known[s] = cuts[s]; known[r] = cuts[r]; known[t] = cuts[t];
        known[q] = (live[q] -> announced[0] : MOST(announced[0], f[q]));
        solved[0] = announced[0]; solved[1] = announced[1];
        p = 0; most = 0; held = 0; changed = 0
    }
}

/* Cuts and their writes. */

#ifdef DROP_CUTS_ARE_AT_WHAT_IS_COMPLETE
#define CUT_AT(who) LEAST(upto[who] + 1, TOP)
#else
#define CUT_AT(who) upto[who]
#endif

inline begin_cut(who) {
    held = CUT_AT(who);
    MUST(cuts_are_at_what_is_complete, held <= upto[who]);
#ifdef DROP_REPORTS_WAIT_FOR_THEIR_SEGMENT
    told[who] = held; stale[who] = 0;
#endif
    writing[HOME(who)] = who * 4 + held;
    held = 0
}

inline stored(w) {
    p = writing[w] / 4; held = writing[w] % 4;
    writing[w] = 0;
    cuts[p] = cuts[p] | BIT(held - 1);
    saved[p] = rows[p] & BELOW(held);
#ifndef DROP_LOGS_ARE_SAVED_WITH_THE_CUT
    if :: p == r -> saved_log = log & BELOW(held) :: else fi;
#endif
    if :: p != r -> known[p] = cuts[p] :: else fi;
    p = 0; held = 0
}

inline report(who, bound) {
    told[who] = bound; stale[who] = 0
}

/* W. */

#define FIRST LEAST(UPTO(known[s] & known[r] & BELOW(known[q])), TOP)
#ifdef DROP_W_IS_A_SOLUTION
#define W1 UPTO(known[s])
#else
#define W1 FIRST
#endif
#define W2 LAST(known[t], FIRST)

inline announce() {
    MUST(watermarks_are_durable_first, journal[0] >= solved[0] && journal[1] >= solved[1]);
    announced[0] = solved[0]; announced[1] = solved[1];
    let_go()
}

/* Worker 0 hears it at once, worker 2 some time later: collect, acknowledge, publish. */
inline let_go() {
    MUST(watermarks_can_be_restored, announced[0] == LAST(cuts[s], announced[0]) && announced[1] == LAST(cuts[t], announced[1]));
#ifdef DROP_CHECKPOINTS_STAY_DOWN_TO_W
    if :: cuts[s] -> cuts[s] = BIT(UPTO(cuts[s]) - 1) :: else fi;
#else
    if :: announced[0] -> cuts[s] = cuts[s] & ~BELOW(announced[0] - 1) :: else fi;
    if :: announced[1] -> cuts[t] = cuts[t] & ~BELOW(announced[1] - 1) :: else fi;
#endif
    acknowledged = MOST(acknowledged, announced[0]);
    do
    :: published < announced[1] ->
        MUST(no_record_is_lost, !(rows[s] & BIT(published)) || (rows[t] & BIT(published)));
        MUST(no_record_comes_twice, (rows[s] & BIT(published)) || !(rows[t] & BIT(published)));
        published++
    :: else -> break
    od;
    skip
}

inline lose(w) { /* a worker dies: what it was writing is there, or is not */
    if
    :: writing[w] -> d_step { stored(w) }
    :: writing[w] = 0
    fi
}

inline finish(w) { /* before it says that it is drained */
    if :: writing[w] -> d_step { stored(w) } :: else fi
}

inline fail() {
    if :: dead & 1 -> lose(0) :: else -> finish(0) fi;
    if :: dead & 2 -> stale[q] = 1 :: else -> told[q] = 0 fi;
    if :: dead & 4 -> lose(2); stale[r] = 1 :: else -> finish(2); told[r] = 0 fi;
    round();
    dead = 0
}

inline hear(who) { /* the monitor hears a report */
    if
#ifndef DROP_REPORTS_OF_EARLIER_GENERATIONS_ARE_VOID
    :: stale[who] -> skip
#endif
    :: else ->
        if
        :: who == q -> known[who] = MOST(known[who], told[who])
        :: else ->
            MUST(reports_wait_for_their_segment, stale[who] || (cuts[who] & BIT(told[who] - 1)));
            known[who] = known[who] | BIT(told[who] - 1)
        fi
    fi;
    told[who] = 0; stale[who] = 0
}

#define CUT(who) \
    :: atomic { writing[HOME(who)] == 0 && CUT_AT(who) > UPTO(cuts[who]) -> d_step { begin_cut(who) } }

active proctype job() {
    do
    /* work */
    :: atomic { upto[s] < TOP ->
        MUST(no_record_comes_twice, upto[s] >= published);
        if
        :: way[s] = way[s] | BIT(upto[s]); rows[s] = rows[s] | BIT(upto[s])
        :: upto[s] == TOP - 1 -> rows[s] = rows[s] & ~BIT(upto[s])
        fi;
        upto[s]++ }
    :: atomic { upto[q] < upto[s] -> d_step {
        if
        :: way[s] & BIT(upto[q]) -> way[q] = way[q] | BIT(upto[q]); rows[q] = rows[q] | BIT(upto[q])
        :: else
        fi;
        way[s] = way[s] & ~BIT(upto[q]); upto[q]++ } }
    :: atomic { upto[r] < upto[q] -> d_step {
        MUST(no_record_comes_twice, (rows[r] & BIT(upto[r])) == 0);
        if
        :: way[q] & BIT(upto[r]) -> way[r] = way[r] | BIT(upto[r]); rows[r] = rows[r] | BIT(upto[r]); log = log | BIT(upto[r])
        :: else
        fi;
        way[q] = way[q] & ~BIT(upto[r]); upto[r]++ } }
    :: atomic { upto[t] < upto[r] -> d_step {
        MUST(no_record_comes_twice, (rows[t] & BIT(upto[t])) == 0);
        rows[t] = rows[t] | (way[r] & BIT(upto[t]));
        way[r] = way[r] & ~BIT(upto[t]); upto[t]++ } }
    /* cuts and reports */
    CUT(s)
    CUT(r)
    CUT(t)
    :: atomic { writing[0] -> d_step { stored(0) } }
    :: atomic { writing[2] -> d_step { stored(2) } }
    :: atomic { told[r] == 0 && UPTO(cuts[r]) > UPTO(known[r]) -> d_step { report(r, UPTO(cuts[r])) } }
    :: atomic { told[q] == 0 && upto[q] > known[q] -> d_step { report(q, upto[q]) } }
    :: atomic { told[q] -> d_step { hear(q) } }
    :: atomic { told[r] -> d_step { hear(r) } }
    /* the monitor */
    :: atomic { !monitor_writes && (W1 > solved[0] || W2 > solved[1]) -> d_step {
        solved[0] = MOST(W1, solved[0]); solved[1] = MOST(W2, solved[1]);
        MUST(watermarks_are_consistent, solved[0] == LAST(known[s], solved[0]) && solved[0] == LAST(known[r], solved[0])
            && solved[0] <= known[q] && solved[1] <= solved[0]);
#ifdef DROP_W_IS_JOURNALED_FIRST
        announce();
#endif
        monitor_writes = 1 } }
    :: atomic { monitor_writes -> d_step {
        monitor_writes = 0; journal[0] = solved[0]; journal[1] = solved[1]; announce() } }
    /* W is heard: collect, acknowledge, publish */
#ifdef DROP_SOURCES_WAIT_FOR_W
    :: atomic { UPTO(cuts[s]) > acknowledged -> acknowledged = UPTO(cuts[s]) }
#endif
#ifdef DROP_SINKS_WAIT_FOR_W
    :: atomic { UPTO(cuts[t]) > published -> published = UPTO(cuts[t]) }
#endif
    :: atomic { heard2[0] < announced[0] || heard2[1] < announced[1] -> d_step {
        heard2[0] = announced[0]; heard2[1] = announced[1];
        MUST(watermarks_can_be_restored, heard2[0] == LAST(cuts[r], heard2[0]));
        if :: heard2[0] -> cuts[r] = cuts[r] & ~BELOW(heard2[0] - 1) :: else fi;
#ifdef DROP_LOGS_GO_WITH_THEIR_RECEIVERS_W
        log = log & ~BELOW(heard2[0]); saved_log = saved_log & ~BELOW(heard2[0]);
#elif !defined(DROP_LOGS_ARE_COLLECTED)
        log = log & ~BELOW(heard2[1]); saved_log = saved_log & ~BELOW(heard2[1]);
#endif
        MUST(logs_are_collected, (log & BELOW(heard2[1])) == 0) } }
    /* faults */
    :: atomic { faults && published < TOP ->
        faults--;
        if
        :: dead = 1 :: dead = 2 :: dead = 3 :: dead = 4 :: dead = 5 :: dead = 6 :: dead = 7
        fi;
        fail() }
    :: atomic { faults && published < TOP -> /* the monitor: another one reads its journal, and all workers join */
        faults--;
        if
        :: monitor_writes -> journal[0] = solved[0]; journal[1] = solved[1]
        :: skip
        fi;
        d_step {
            monitor_writes = 0;
            solved[0] = journal[0]; solved[1] = journal[1]; announced[0] = journal[0]; announced[1] = journal[1];
            let_go(); /* it tells all of it again */
            told[q] = 0; told[r] = 0; stale[q] = 0; stale[r] = 0;
            known[s] = cuts[s]; known[r] = cuts[r]; known[t] = cuts[t];
#ifdef DROP_WHAT_KEEPS_NOTHING_HAS_ALL_OF_W
            known[q] = 0
#else
            known[q] = journal[0]
#endif
        } }
    :: published == TOP && acknowledged == TOP -> break
    :: timeout -> MUST(everything_ends, 0)
    od
}
