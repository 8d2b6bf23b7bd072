/* A round of rollback: pause, drain, report, solve, journal, restore, note, go; with failures at every point of it.
 *
 * Worker 0 has a source, worker 1 a sink: s -> (exchange) -> r, not logged and not kept, so the decision is that of Figure 6. A
 * third worker has no part in the data: of it there is only that it fails, and that a round begins in which the others live.
 * An epoch is one message, with a record or without; the last one is chosen anew whenever it is read, so nothing repeats.
 * A process that is given up and still lives is a zombie (of worker 0): it sends, and it writes. The monitor dies, too.
 * Separate steps are what agent, coordinator and stores do at once: see recovery/agent/agent.py and
 * monitor/coordination/coordinator.py, whose names are used here. Bounds are numbers: b stands for the epochs below b.
 */

#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define LIVE 7
#define TOP EPOCHS

hidden byte no_record_is_lost, no_record_comes_twice, everything_ends, decisions_keep_what_was_promised,
    numbers_of_rounds_are_reserved, decisions_are_durable_first, decisions_are_noted_in_turn, who_has_failed_does_not_stay,
    all_are_there_while_it_runs, one_generation;
#define MUST(invariant, condition) assert(invariant || (condition))

#define BIT(e) (1 << (e))
#define BELOW(b) ((1 << (b)) - 1)
#define LEAST(x, y) ((x) < (y) -> (x) : (y))
#define MOST(x, y) ((x) > (y) -> (x) : (y))

/* Phases of a worker's process. */
#define ABSENT 0
#define JOINING 1
#define RUNNING 2
#define DRAINING 3
#define DRAINED 4
/* Phases of the job. */
#define DOWN 0
#define ASSEMBLING 1
#define GATHERING 2
#define DECIDING 3
#define RESTORING 4
#define GOING 5
/* Presences. */
#define AWAITED 0
#define LOST 1
#define BEHIND 2
#define JOINED 3
#define THERE 4
/* What the monitor says. */
#define DRAIN 1
#define DECISION 2
#define CATCH_UP 3
/* What a worker says, a bit each. */
#define JOIN 1
#define DRAINED_LINKS 2
#define RESTORED 4
#define END 7 /* in place of an epoch: the marker that ends a generation on a link; its number is the round */

/* The processes of the workers. */
byte phase[2] = RUNNING;
byte gen[2] = 1;       /* of the last decision that was carried out, or noted */
byte heard[2];         /* the newest round that was heard of */
byte ended[2];         /* the newest round of which the other's end marker has come */
bool waits[2];         /* the other one is to empty its link, too */
byte seed[2] = 1;      /* the newest generation of which the other's first frame has come */
byte upto[2];          /* epochs that s has read, that r has taken */
byte rows[2];          /* those that have a record */
byte queue, queued;    /* of r: how many epochs wait, from upto[1] on, and which of these have a record */
chan link = [8] of { byte, byte, bit };      /* from s to r: generation, epoch, with a record */
chan orders0 = [3] of { byte, byte, byte };  /* from the monitor: what, number, who lives */
chan orders1 = [3] of { byte, byte, byte };
byte said[2];
byte drained_in[2], restored_in[2]; /* the numbers that go with it */
/* A zombie of worker 0: a process that was given up, and does not know. */
bool zombie, fenced;
byte zombie_gen, zombie_at, zombie_cut, zombie_rows;
/* The stores of the workers. */
byte noted[2] = 1;     /* the last decision that is in it */
byte dur[2];           /* the last cut; there is one at each bound from W to it */
byte saved[2];
/* The monitor, and its journal. */
byte mphase = GOING;
byte round = 1;
byte mgen = 1;
byte presence[2] = THERE;
bool restored[2] = 1;
bool paused[2], memory[2], again;
byte held[2];          /* upto, as it is told with the memory */
byte deciding;         /* whom the decision that is on its way to the journal is for, a bit each */
byte decided[2], failed;
byte jgen = 1, jprev, jbound[2] = LIVE, jfailed, reserved = 9, low;
/* Beside it all. */
byte used_before;      /* the greatest number of a round that an earlier monitor has used */
byte faults = FAULTS;

hidden byte who, c1, c2, c3; /* who lives; a message in hand */

#ifdef DROP_WHO_IS_PAUSED_NEEDS_A_ROUND
#define NOBODY_PAUSED 1
#else
#define NOBODY_PAUSED !paused[0] && !paused[1]
#endif

#ifdef DROP_W_RISES_WHILE_ALL_ARE_THERE
#define MAY_RISE (mphase != DOWN)
#else
#define MAY_RISE (mphase == GOING)
#endif
#ifdef DROP_JOURNALS_ARE_FENCED
#define CAN_WRITE 1
#else
#define CAN_WRITE !fenced
#endif

#define ALIVE(w) (phase[w] >= RUNNING)
#define OTHER(w) (1 - (w))


/* ---------------------------------------------------------------- the monitor */

/* An order to a worker, in the order of saying. `who`: for DRAIN, whoever lives. */
inline order(w, what, number) {
    if
    :: w == 0 -> assert(nfull(orders0)); orders0!what(number, who)
    :: w == 1 -> assert(nfull(orders1)); orders1!what(number, who)
    fi
}

inline purge(w) {
    if
    :: w == 0 -> do :: nempty(orders0) -> orders0?_, _, _ :: empty(orders0) -> break od
    :: w == 1 -> do :: nempty(orders1) -> orders1?_, _, _ :: empty(orders1) -> break od
    fi
}

inline drain(w) {
    if
    :: presence[w] == THERE -> memory[w] = 0; order(w, DRAIN, round)
    :: else
    fi
}

inline begin() {
    mphase = GATHERING;
    round++;
    MUST(numbers_of_rounds_are_reserved, round > used_before && round <= reserved);
    who = (presence[0] == THERE -> 1 : 0) + (presence[1] == THERE -> 2 : 0);
    drain(0); drain(1);
    who = 0;
    decide()
}

#define SAYS(w) (presence[w] == JOINED || (presence[w] == THERE && memory[w]))

/* Solve, once all have said what they can be restored to: Figure 6 for this graph. */
inline decide() {
    if
    :: mphase == GATHERING && SAYS(0) && SAYS(1) ->
        failed = (presence[0] == JOINED -> 1 : 0) + (presence[1] == JOINED -> 2 : 0);
        if
        :: failed == 0 -> decided[0] = LIVE; decided[1] = LIVE
        :: failed == 1 ->
            decided[0] = LEAST(dur[0], held[1]);
            decided[1] = (held[1] <= decided[0] -> LIVE : decided[0])
        :: failed == 2 ->
            decided[1] = dur[1];
            decided[0] = (held[0] <= decided[1] -> LIVE : decided[1])
        :: failed == 3 -> decided[0] = LEAST(dur[0], dur[1]); decided[1] = decided[0]
        fi;
#ifdef DROP_WHO_HAS_FAILED_DOES_NOT_STAY
        decided[0] = LIVE; decided[1] = LIVE;
#endif
        MUST(who_has_failed_does_not_stay, !(failed & 1 && decided[0] == LIVE) && !(failed & 2 && decided[1] == LIVE));
        MUST(decisions_keep_what_was_promised, decided[0] >= low && decided[1] >= low);
        mphase = DECIDING; again = 0; deciding = 3;
#ifdef DROP_DECISIONS_ARE_DURABLE_FIRST
        mgen = round; tell(0); tell(1)
#endif
    :: else
    fi
}

inline journal() {
    jprev = jgen; jgen = round; jbound[0] = decided[0]; jbound[1] = decided[1]; jfailed = failed;
    decided[0] = 0; decided[1] = 0; failed = 0
}

inline decide_for(w) {
    MUST(decisions_are_durable_first, jgen == mgen);
    presence[w] = THERE; restored[w] = 0; memory[w] = 0; held[w] = 0;
    order(w, DECISION, mgen)
}

inline tell(w) {
    if
    :: deciding & BIT(w) -> decide_for(w)
    :: !(deciding & BIT(w)) && presence[w] == JOINED -> presence[w] = BEHIND; order(w, CATCH_UP, mgen)
    :: else
    fi
}

inline stored_decision() {
    journal();
    mgen = jgen;
    tell(0); tell(1);
    deciding = 0;
    mphase = RESTORING;
    if :: again -> again = 0; begin() :: else fi
}

inline assemble() {
    if
    :: mphase == ASSEMBLING && presence[0] != AWAITED && presence[1] != AWAITED ->
        if
        :: restored[0] && restored[1] && NOBODY_PAUSED -> mphase = GOING
        :: else -> begin()
        fi
    :: else
    fi
}

inline trouble() {
    if
    :: mphase == ASSEMBLING -> assemble()
    :: mphase == DECIDING -> again = 1
    :: else -> begin()
    fi
}

inline lose(w) {
    presence[w] = LOST; restored[w] = 0; paused[w] = 0; memory[w] = 0; held[w] = 0;
    deciding = deciding & ~BIT(w);
    said[w] = 0; drained_in[w] = 0; restored_in[w] = 0;
    purge(w);
    trouble()
}

#define MISSED(w) (gen[w] < mgen)

inline join(w) {
    said[w] = said[w] & ~JOIN;
    MUST(decisions_are_noted_in_turn, noted[w] == jgen || noted[w] == jprev);
    if
#ifndef DROP_WHO_MISSED_A_DECISION_NOTES_IT_FIRST
    :: !ALIVE(w) && MISSED(w) -> presence[w] = BEHIND; order(w, CATCH_UP, mgen)
    :: !ALIVE(w) && !MISSED(w) -> presence[w] = JOINED
#else
    :: !ALIVE(w) -> presence[w] = JOINED
#endif
    :: ALIVE(w) ->
        presence[w] = THERE; paused[w] = phase[w] != RUNNING;
#ifdef DROP_WHO_LIVES_AND_MISSED_A_DECISION_IS_TOLD
        restored[w] = 1
#else
        restored[w] = !MISSED(w);
        if :: MISSED(w) -> decide_for(w) :: else fi
#endif
    fi;
    if :: presence[w] != BEHIND -> assemble(); decide() :: else fi
}

inline hear_drained(w) {
    said[w] = said[w] & ~DRAINED_LINKS;
    if
    :: presence[w] == THERE && mphase == GATHERING && drained_in[w] == round && !memory[w] ->
        memory[w] = 1; drained_in[w] = 0;
        decide()
    :: else -> drained_in[w] = 0
    fi
}

inline hear_restored(w) {
    said[w] = said[w] & ~RESTORED;
    if
    :: presence[w] == THERE && restored_in[w] == mgen && !restored[w] ->
        restored[w] = 1;
        if :: mphase == RESTORING && restored[0] && restored[1] -> mphase = GOING :: else fi
    :: else
    fi;
    restored_in[w] = 0
}

/* ---------------------------------------------------------------- the workers */

/* A process dies: its memory is gone, and so is what was under way to it. What it has sent may arrive. */
inline die(w) {
    phase[w] = ABSENT; gen[w] = 0; heard[w] = 0; ended[w] = 0; waits[w] = 0; seed[w] = 0; upto[w] = 0; rows[w] = 0;
    purge(w);
    if
    :: w == 1 ->
        queue = 0; queued = 0;
        do :: nempty(link) -> link?_, _, _ :: empty(link) -> break od
    :: w == 0
    fi
}

inline start(w) {
    phase[w] = JOINING; gen[w] = noted[w];
    said[w] = JOIN;
    if :: w == 0 -> fenced = zombie :: w == 1 fi
}

inline send(g, e, row) {
    if
    :: ALIVE(1) -> assert(nfull(link)); link!g(e, row)
    :: else
    fi
}

inline pause(w, number, living) {
    if
    :: number > heard[w] && ALIVE(w) ->
        heard[w] = number;
        phase[w] = DRAINING;
#ifdef DROP_THE_DEAD_NEED_NOT_DRAIN
        waits[w] = 1;
#else
        waits[w] = (living & BIT(OTHER(w))) != 0;
#endif
        if
        :: w == 0 && ALIVE(1) -> send(number, END, 0)
        :: w == 0 && phase[1] == JOINING -> ended[1] = MOST(ended[1], number) /* its link is empty */
        :: w == 1 && phase[0] != ABSENT -> ended[0] = MOST(ended[0], number)
        :: else
        fi
    :: else
    fi
}

#ifdef DROP_LINKS_ARE_DRAINED
#define EMPTIED(w) 1
#else
#define EMPTIED(w) (!waits[w] || ended[w] >= heard[w])
#endif
#ifdef DROP_WHO_IS_DRAINED_HAS_NOTED_THE_DECISION
#define WRITTEN(w) 1
#else
#define WRITTEN(w) (noted[w] == gen[w])
#endif

inline say_drained(w) {
    phase[w] = DRAINED;
    said[w] = said[w] | DRAINED_LINKS; drained_in[w] = heard[w]; held[w] = upto[w]
}

inline carry_out(w, number) {
    if
    :: number <= gen[w] -> skip
    :: else ->
        MUST(one_generation, number == jgen);
        if
        :: phase[w] == JOINING -> /* from the store */
            upto[w] = jbound[w]; rows[w] = saved[w] & BELOW(jbound[w])
        :: phase[w] != JOINING && jbound[w] != LIVE -> /* in memory */
            upto[w] = jbound[w]; rows[w] = rows[w] & BELOW(jbound[w])
        :: else
        fi;
        if
        :: w == 1 && jbound[1] != LIVE -> queued = 0; queue = 0
#ifndef DROP_WHAT_THE_DEAD_SENT_IS_VOID
        :: w == 1 && jbound[1] == LIVE && (jfailed & 1) -> queued = 0; queue = 0
#endif
        :: w == 1 && jbound[1] == LIVE && (jfailed & 1) == 0 && jbound[0] != LIVE ->
            queued = (queued > 0 && jbound[0] > upto[1] -> LEAST(queued, jbound[0] - upto[1]) : 0);
            queue = queue & BELOW(upto[1] + queued)
        :: else
        fi;
        gen[w] = number;
        phase[w] = RUNNING;
        heard[w] = MOST(heard[w], number);
        if :: phase[OTHER(w)] != ABSENT -> seed[OTHER(w)] = MOST(seed[OTHER(w)], number) :: else fi
    fi
}

/* The decision is in the store: what lies outside it is void for whoever reads it. */
inline note(w) {
    noted[w] = gen[w];
#ifndef DROP_WHAT_A_DECISION_LEAVES_OUT_IS_VOID
    dur[w] = LEAST(dur[w], jbound[w]);
    saved[w] = saved[w] & BELOW(dur[w]);
#endif
    if
    :: ALIVE(w) -> said[w] = said[w] | RESTORED; restored_in[w] = gen[w]
    :: else -> said[w] = said[w] | JOIN
    fi
}

inline obey(w, what, number, living) {
    if
    :: what == DRAIN -> pause(w, number, living)
    :: what == DECISION -> carry_out(w, number)
    :: what == CATCH_UP -> gen[w] = number
    fi
}

inline read() {
    MUST(no_record_comes_twice, upto[0] >= low);
    if
    :: rows[0] = rows[0] | BIT(upto[0]); send(gen[0], upto[0], 1)
    :: upto[0] == TOP - 1 -> rows[0] = rows[0] & ~BIT(upto[0]); send(gen[0], upto[0], 0)
    fi;
    upto[0]++
}

#ifdef DROP_FRAMES_OF_EARLIER_GENERATIONS_ARE_VOID
#define OLD(g) 0
#else
#define OLD(g) ((g) < gen[1])
#endif

inline receive(g, e, row) {
    if
    :: e == END -> ended[1] = MOST(ended[1], g)
    :: e != END && OLD(g) -> skip
    :: else ->
        MUST(no_record_is_lost, e <= upto[1] + queued);
        MUST(no_record_comes_twice, e >= upto[1] + queued);
        if :: row -> queue = queue | BIT(e) :: else fi;
        queued++
    fi
}

#ifdef DROP_WHO_IS_PAUSED_DOES_NOT_RUN
#define RUNS(w) ALIVE(w)
#else
#define RUNS(w) (phase[w] == RUNNING)
#endif

inline cut(w) {
    dur[w]++;
    saved[w] = rows[w] & BELOW(dur[w])
}

active proctype job() {
    do
    /* work: nothing before the first frames of the generation are in */
    :: atomic { RUNS(0) && seed[0] == gen[0] && upto[0] < TOP -> read() }
    :: atomic { ALIVE(1) && nempty(link) -> d_step { link?c1, c2, c3; receive(c1, c2, c3) } }
    :: atomic { RUNS(1) && seed[1] == gen[1] && queued > 0 -> d_step {
        rows[1] = rows[1] | (queue & BIT(upto[1])); queue = queue & ~BIT(upto[1]);
        queued--; upto[1]++ } }
    :: atomic { (phase[0] == RUNNING && noted[0] == gen[0] && phase[1] == RUNNING
        && gen[0] == gen[1] && dur[0] < LEAST(upto[0], upto[1])) -> cut(0) }
    :: atomic { (phase[1] == RUNNING && noted[1] == gen[1] && phase[0] == RUNNING
        && gen[0] == gen[1] && dur[1] < LEAST(upto[0], upto[1])) -> cut(1) }
    /* orders */
    :: atomic { phase[0] != ABSENT && nempty(orders0) -> d_step {
        orders0?c1, c2, c3; obey(0, c1, c2, c3) } }
    :: atomic { phase[1] != ABSENT && nempty(orders1) -> d_step {
        orders1?c1, c2, c3; obey(1, c1, c2, c3) } }
    :: atomic { phase[0] == DRAINING && WRITTEN(0) && EMPTIED(0) -> d_step { say_drained(0) } }
    :: atomic { phase[1] == DRAINING && WRITTEN(1) && EMPTIED(1) -> d_step { say_drained(1) } }
    :: atomic { phase[0] != ABSENT && noted[0] < gen[0] -> d_step { note(0) } }
    :: atomic { phase[1] != ABSENT && noted[1] < gen[1] -> d_step { note(1) } }
    /* the monitor hears */
    :: atomic { mphase != DOWN && (said[0] & JOIN) -> d_step { join(0) } }
    :: atomic { mphase != DOWN && (said[1] & JOIN) -> d_step { join(1) } }
    :: atomic { mphase != DOWN && (said[0] & DRAINED_LINKS) -> d_step { hear_drained(0) } }
    :: atomic { mphase != DOWN && (said[1] & DRAINED_LINKS) -> d_step { hear_drained(1) } }
    :: atomic { mphase != DOWN && (said[0] & RESTORED) -> d_step { hear_restored(0) } }
    :: atomic { mphase != DOWN && (said[1] & RESTORED) -> d_step { hear_restored(1) } }
    :: atomic { mphase == DECIDING -> d_step { stored_decision() } }
    :: atomic { MAY_RISE && LEAST(dur[0], dur[1]) > low -> d_step {
        MUST(all_are_there_while_it_runs, presence[0] == THERE && presence[1] == THERE && restored[0] && restored[1]);
        MUST(no_record_is_lost, (saved[0] & BIT(low) & ~saved[1]) == 0);
        MUST(no_record_comes_twice, (saved[1] & BIT(low) & ~saved[0]) == 0);
        low++ } }
    /* who is gone is missed, and another process begins; a new monitor is joined by all that are there */
    :: atomic { mphase != DOWN && phase[0] == ABSENT && presence[0] != LOST -> d_step { lose(0) } }
    :: atomic { mphase != DOWN && phase[1] == ABSENT && presence[1] != LOST -> d_step { lose(1) } }
    :: atomic { mphase != DOWN && phase[0] == ABSENT && presence[0] == LOST -> d_step { start(0) } }
    :: atomic { mphase != DOWN && phase[1] == ABSENT && presence[1] == LOST -> d_step { start(1) } }
    :: atomic { (mphase != DOWN && phase[0] != ABSENT && presence[0] == AWAITED
        && !(said[0] & JOIN) && noted[0] == gen[0]) -> said[0] = said[0] | JOIN }
    :: atomic { (mphase != DOWN && phase[1] != ABSENT && presence[1] == AWAITED
        && !(said[1] & JOIN) && noted[1] == gen[1]) -> said[1] = said[1] | JOIN }
    :: atomic { mphase == DOWN -> d_step {
        mphase = ASSEMBLING; mgen = jgen;
        used_before = MOST(used_before, round);
#ifdef DROP_NUMBERS_OF_ROUNDS_ARE_RESERVED
        round = jgen;
#else
        round = MOST(reserved, jgen);
#endif
        reserved = round + 8 } }
    /* the zombie */
    :: atomic { zombie && zombie_at < TOP && ALIVE(1) ->
        if
        :: send(zombie_gen, zombie_at, 1)
        :: zombie_at == TOP - 1 -> send(zombie_gen, zombie_at, 0)
        fi;
        zombie_at++ }
    :: atomic { zombie && zombie_cut && CAN_WRITE -> d_step {
        noted[0] = zombie_gen; dur[0] = zombie_cut; saved[0] = zombie_rows; zombie_cut = 0; zombie_rows = 0 } }
    /* faults */
    :: atomic { faults && low < TOP && phase[0] != ABSENT -> d_step { faults--; die(0) } }
    :: atomic { faults && low < TOP && phase[1] != ABSENT -> d_step { faults--; die(1) } }
    :: atomic { (faults && low < TOP && ALIVE(0)
        && !zombie && mphase != DOWN && presence[0] == THERE) -> d_step { /* it is taken for dead */
        faults--;
        zombie = 1; fenced = 0; zombie_gen = gen[0];
        zombie_at = (phase[0] == RUNNING && seed[0] == gen[0] -> upto[0] : TOP);
        if
        :: noted[0] == gen[0] && ALIVE(1) && gen[1] == gen[0] && LEAST(upto[0], upto[1]) > dur[0] ->
            zombie_cut = LEAST(upto[0], upto[1]); zombie_rows = rows[0] & BELOW(zombie_cut)
        :: else
        fi;
        die(0);
        lose(0) } }
    :: atomic { faults && low < TOP && mphase != DOWN && mphase != ASSEMBLING -> d_step { faults--; trouble() } }
    :: atomic { faults && low < TOP && mphase != DOWN ->
        faults--;
        if
        :: mphase == DECIDING -> journal()
        :: skip
        fi;
        d_step {
            mphase = DOWN; said[0] = 0; said[1] = 0; drained_in[0] = 0; drained_in[1] = 0; restored_in[0] = 0;
            restored_in[1] = 0;
            purge(0); purge(1);
            presence[0] = AWAITED; presence[1] = AWAITED; restored[0] = 0; restored[1] = 0; paused[0] = 0;
            paused[1] = 0;
            memory[0] = 0; memory[1] = 0; held[0] = 0; held[1] = 0; again = 0; deciding = 0; failed = 0;
            decided[0] = 0; decided[1] = 0
        } }
    :: low == TOP -> break
    :: timeout ->
        MUST(no_record_is_lost, !(phase[0] == RUNNING && phase[1] == RUNNING && gen[0] == gen[1] && upto[1] + queued < upto[0]));
        MUST(everything_ends, 0)
    od
}
