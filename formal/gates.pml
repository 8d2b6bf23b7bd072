/* Eager regions: each worker commits alone, and what leaves a region waits at a gate until that is durable.
 *
 *     worker 0:  a (eager, nothing comes to it from outside) => gate =>   worker 1:  b (eager, fed)
 *                l (a source that is cut now and then)              =>
 *
 * Edges are logged, and a log is saved with the cut or commit of its sender. The outputs of a are published with its commits,
 * those of b by W. An epoch of a or l has a record or none, chosen anew whenever it is read: so nothing is taken to repeat. A
 * round is one step here (rounds.pml has its interleavings). Bounds are numbers: i stands for the epochs below i.
 */

#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef FAULTS
#define FAULTS 3
#endif
#define TOP EPOCHS

hidden byte no_record_is_lost, no_record_comes_twice, everything_ends, decisions_keep_what_was_promised,
    cuts_are_at_what_is_complete, what_has_left_a_region_is_not_taken_back;
#define MUST(invariant, condition) assert(invariant || (condition))

#define BIT(e) (1 << (e))
#define BELOW(b) ((1 << (b)) - 1)
#define UPTO(mask) ((mask) >= 4 -> 3 : ((mask) >= 2 -> 2 : (mask)))
#define LAST(cuts, b) UPTO((cuts) & BELOW(b))
#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define a 0
#define l 1

/* In memory on worker 0: a and l. */
byte upto[2];       /* the epochs that each has read, as a bound */
byte rows[2];       /* those of them that have a record */
byte log[2];        /* the same, as far as it is logged */
byte waits;         /* in front of the gate */
byte gate;          /* the gate lets through what lies below */
byte way[2];        /* to b, behind the gate */
/* On worker 1: b. */
byte got[2];
byte done;
byte since;         /* the bound at which it came back from the store */
/* Durable. */
byte last[2];       /* the last cut or commit of a and l: no other is needed, for nobody takes them below */
byte saved_log[2];
byte commits;       /* of b, a bit for each bound above 0 */
byte saved[2];
byte writing[3];    /* the bound that a, l and b are writing; 0: none */
byte low;           /* W of b */
byte published[2];  /* of a, of b */
byte faults = FAULTS;
byte dead;

hidden byte f[2], fb, i, again, most;

#define ALIVE(w) (((dead) & (1 << (w))) == 0)

inline round() {
    d_step {
        f[a] = (ALIVE(0) -> TOP : last[a]);
        f[l] = (ALIVE(0) -> TOP : last[l]);
        most = LEAST(f[a], f[l]);
        MUST(what_has_left_a_region_is_not_taken_back, (got[a] & ~BELOW(f[a])) == 0 || !ALIVE(1));
        if
        :: !ALIVE(1) -> fb = LAST(commits, most)
        :: ALIVE(1) && done <= most && (got[a] & ~BELOW(f[a])) == 0 && (got[l] & ~BELOW(f[l])) == 0 -> fb = TOP + 1 /* it stays */
        :: else ->
            fb = LEAST(done, most);
            if :: fb < since -> fb = LAST(commits, fb) :: else fi
        fi;
        MUST(decisions_keep_what_was_promised, fb >= low && f[a] >= published[0]);
        again = (fb > TOP -> done : fb);
        i = 0;
        do
        :: i < 2 ->
            if
            :: !ALIVE(0) -> upto[i] = f[i]; rows[i] = rows[i] & BELOW(f[i]); log[i] = saved_log[i]; way[i] = 0
            :: else
            fi;
            if
            :: fb <= TOP ->
                if :: !ALIVE(1) -> got[i] = saved[i] :: else fi;
                got[i] = got[i] & BELOW(fb);
                saved[i] = saved[i] & BELOW(fb)
            :: else
            fi;
            /* from the log: what b lacks; who stays refuses what it had */
            if
            :: !ALIVE(0) || fb <= TOP ->
#ifdef DROP_WHO_STAYS_REFUSES_WHAT_IT_HAD
                again = (fb > TOP -> 0 : fb);
#endif
                if
                :: i == a ->
                    waits = log[a] & ~BELOW(again);
                    if :: fb > TOP -> way[a] = (ALIVE(0) -> way[a] : 0) :: else -> way[a] = 0 fi;
#ifndef DROP_WHO_STAYS_REFUSES_WHAT_IT_HAD
                    waits = waits & ~got[a]
#endif
                :: else ->
#ifdef DROP_WHO_STAYS_REFUSES_WHAT_IT_HAD
                    way[l] = log[l] & ~BELOW(again)
#else
                    way[l] = log[l] & ~BELOW(again) & ~got[l]
#endif
                fi
            :: else
            fi;
            i++
        :: else -> break
        od;
        if
        :: !ALIVE(0) ->
#ifdef DROP_GATES_ARE_OPEN_FOR_WHAT_IS_DURABLE
            gate = 0
#else
            gate = last[a]
#endif
        :: else
        fi;
        if
        :: fb <= TOP -> done = fb; since = (ALIVE(1) -> LEAST(since, fb) : fb); commits = commits & BELOW(fb)
        :: else
        fi;
        i = 0; again = 0; most = 0; fb = 0; f[a] = 0; f[l] = 0
    }
}

inline stored(p) { /* p: 0, 1 for a, l */
    last[p] = writing[p]; writing[p] = 0;
#ifdef DROP_LOGS_ARE_SAVED_WITH_THE_CUT
    if :: p == l -> saved_log[p] = log[p] & BELOW(last[p]) :: else fi
#else
    saved_log[p] = log[p] & BELOW(last[p])
#endif
}

inline stored_b() {
    commits = commits | BIT(writing[2] - 1);
    saved[a] = got[a] & BELOW(writing[2]); saved[l] = got[l] & BELOW(writing[2]);
    writing[2] = 0
}

/* Who lives finishes what it writes before it says that it is drained; of the others it is there, or is not. */
inline fail() {
    if :: writing[a] -> d_step { stored(a) } :: writing[a] && !ALIVE(0) -> writing[a] = 0 :: !writing[a] fi;
    if :: writing[l] -> d_step { stored(l) } :: writing[l] && !ALIVE(0) -> writing[l] = 0 :: !writing[l] fi;
    if :: writing[2] -> d_step { stored_b() } :: writing[2] && !ALIVE(1) -> writing[2] = 0 :: !writing[2] fi;
    if :: ALIVE(0) -> gate = last[a] :: else fi;
    round();
    dead = 0
}

inline choose(p) {
    MUST(no_record_comes_twice, upto[p] >= published[1] && (p == l || upto[p] >= published[0]));
    if
    :: rows[p] = rows[p] | BIT(upto[p]); log[p] = log[p] | BIT(upto[p]);
        if
        :: p == l -> way[l] = way[l] | BIT(upto[l])
        :: else -> waits = waits | BIT(upto[a])
        fi
    :: rows[p] = rows[p] & ~BIT(upto[p])
    fi;
    upto[p]++
}

inline take(p, e) {
    way[p] = way[p] & ~BIT(e);
    MUST(no_record_comes_twice, (got[p] & BIT(e)) == 0);
    got[p] = got[p] | BIT(e)
}

#ifdef DROP_GATES_WAIT_FOR_THE_COMMIT
#define PASSES(e) (waits & BIT(e))
#else
#define PASSES(e) ((waits & BIT(e)) && (e) < gate)
#endif
#ifdef DROP_WHAT_WAITS_AT_A_GATE_IS_OUTSTANDING
#define OUTSTANDING (way[a] | way[l])
#else
#define OUTSTANDING (waits | way[a] | way[l])
#endif
#ifdef DROP_OUTPUTS_WAIT_FOR_THE_COMMIT
#define INSIDE upto[a]
#else
#define INSIDE last[a]
#endif
#ifdef DROP_WHO_IS_FED_PUBLISHES_BY_W
#define BEHIND UPTO(commits)
#else
#define BEHIND low
#endif

#define EPOCH(e) \
    :: atomic { PASSES(e) -> waits = waits & ~BIT(e); way[a] = way[a] | BIT(e) } \
    :: atomic { way[a] & BIT(e) -> d_step { take(a, e) } } \
    :: atomic { way[l] & BIT(e) -> d_step { take(l, e) } }

active proctype job() {
    do
    :: atomic { upto[a] < TOP -> choose(a) }
    :: atomic { upto[l] < TOP -> choose(l) }
    EPOCH(0)
    EPOCH(1)
    :: atomic { done < LEAST(upto[a], upto[l]) && !(OUTSTANDING & BELOW(done + 1)) -> done++ }
    /* commits, as soon as something is complete; cuts of l now and then */
    :: atomic { !writing[a] && upto[a] > last[a] -> writing[a] = upto[a] }
    :: atomic { !writing[l] && upto[l] > last[l] -> writing[l] = upto[l] }
    :: atomic { !writing[2] && done > UPTO(commits) -> d_step {
        MUST(cuts_are_at_what_is_complete, ((waits | way[a] | way[l]) & BELOW(done)) == 0);
        writing[2] = done } }
    :: atomic { writing[a] -> d_step { stored(a); gate = last[a] } }
    :: atomic { writing[l] -> d_step { stored(l) } }
    :: atomic { writing[2] -> d_step { stored_b() } }
    :: atomic { LAST(commits, LEAST(last[a], last[l])) > low -> low = LAST(commits, LEAST(last[a], last[l])) }
    :: atomic { published[0] < INSIDE -> published[0]++ }
    :: atomic { published[1] < BEHIND -> d_step {
        i = BIT(published[1]);
        MUST(no_record_is_lost, (rows[a] & i & ~saved[a]) == 0 && (rows[l] & i & ~saved[l]) == 0);
        MUST(no_record_comes_twice, (saved[a] & i & ~rows[a]) == 0 && (saved[l] & i & ~rows[l]) == 0);
        published[1]++; i = 0 } }
    :: atomic { faults && published[1] < TOP ->
        faults--;
        if :: dead = 1 :: dead = 2 :: dead = 3 fi;
        fail() }
    :: published[0] == TOP && published[1] == TOP -> break
    :: timeout -> MUST(everything_ends, 0)
    od
}
