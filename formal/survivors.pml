/* Survivors: kept messages, coverage, suppression, dropping incomplete times only, and what determinism has to do with it.
 *
 * Two workers. On each a source s reads EPOCHS epochs of one record each, and z collects: s -> (exchange) -> z. A record goes to
 * one of the two z, the same one whenever it is done again, unless DICE is defined: then it is chosen anew each time. In front of
 * the exchange stands an operator that repeats and keeps nothing: its bound is that of s, and so is its f_n. Nothing is logged. A
 * cut persists s and z of one worker. A round is one step here (rounds.pml has its interleavings); the decision is that of
 * recovery/fixed_point/solve.py, written out for this graph. TREATED_AS_REPEATING says what the decision takes s for. Bounds are
 * numbers: b stands for the epochs below b.
 */

#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef FAULTS
#define FAULTS 3
#endif
#define LIVE 7    /* stays as it is, in place of a bound */
#define TOP EPOCHS /* everything */

/* Names for what must hold; never set. MUST shows the name in the report of the verifier. */
hidden byte no_record_is_lost, no_record_comes_twice, everything_ends, decisions_keep_what_was_promised,
    kept_messages_are_collected, what_came_back_is_complete, survivors_keep_what_they_have;
#define MUST(invariant, condition) assert(invariant || (condition))

#define AT(u, v) ((u) * 2 + (v))
#define BIT(e) (1 << (e))
#define BELOW(b) ((1 << (b)) - 1)
#define UPTO(mask) ((mask) >= 4 -> 3 : ((mask) >= 2 -> 2 : (mask))) /* the bound just behind the greatest of a set of epochs */
#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define MOST(a, b) ((a) > (b) -> (a) : (b))
/* the last cut within b */
#define LAST(cuts, b) UPTO((cuts) & BELOW(b))

/* What a worker has in memory. */
byte pos[2];     /* epochs that s has closed */
bool sent[2];    /* s has sent the record of the epoch that is open */
byte done[2];    /* what z has acted on, as complete */
byte got[4];     /* AT(u, v): the epochs whose record from s of u is in the state of z of v */
byte way[4];     /* AT(u, v): what is sent and not taken */
byte kept[4];    /* AT(u, v): what s of u keeps in memory of what it sent to z of v */
byte cover[4];   /* AT(u, v): from here on all of it is kept */
byte since_s[2], since_z[2]; /* the bounds at which they came back from the store, in this process */
/* What is durable. */
byte cuts[2];    /* by worker, a bit for each bound above 0 */
byte saved[4];   /* got, as of the last cut of v */
byte low;        /* W: one for all here */
byte have[2];    /* the bounds at which z came back last, as the decisions say: the suppression */
byte faults = FAULTS;
byte lost;

/* Of one round; nothing of it stays. */
hidden byte fs[2], fz[2], ns[2], nz[2], u, v, at, held, again, upto_z[2], changed, stuck, most, treated;
hidden byte gone_s[2], gone_z[2]; /* restored to what is persisted */

#define ALIVE(dead, w) (((dead) & (1 << (w))) == 0)

#ifdef DICE
#define REPEATS 0
#else
#define REPEATS 1
#endif
#if defined(TREATED_AS_REPEATING) || defined(DROP_WHAT_DOES_NOT_REPEAT_IS_NOT_TAKEN_TO)
#define TREATED 1
#else
#define TREATED 0
#endif

inline lower_s(w) {
    if
    :: gone_s[w] -> fs[w] = LAST(cuts[w], most)
    :: else -> fs[w] = most
    fi;
    changed = 1
}

inline lower_z(w) {
    if
    :: gone_z[w] -> fz[w] = LAST(cuts[w], most)
    :: else -> fz[w] = most
    fi;
    changed = 1
}

/* recovery/fixed_point/solve.py: _RepeatingDescent, until nothing is lowered any more. */
inline descend() {
    u = 0;
    do
    :: u < 2 ->
        fs[u] = (gone_s[u] -> LAST(cuts[u], TOP) : LIVE);
        fz[u] = (gone_z[u] -> LAST(cuts[u], TOP) : LIVE);
        ns[u] = TOP; nz[u] = TOP; u++
    :: else -> break
    od;
    do
    :: changed = 0; u = 0;
        do
        :: u < 2 ->
            /* f_n(s) within f(s) and what it repeats; f within f_n, and N within f_n where it stays at top */
            if :: fs[u] != LIVE && !treated && ns[u] > fs[u] -> ns[u] = fs[u]; changed = 1 :: else fi;
            if :: fs[u] != LIVE && fs[u] > ns[u] -> most = ns[u]; lower_s(u) :: else fi;
            if :: fs[u] == LIVE && pos[u] > ns[u] -> most = LEAST(pos[u], ns[u]); lower_s(u) :: else fi;
#ifndef DROP_DETERMINISM_IS_A_FRONTIER
            if :: nz[u] > LEAST(ns[0], ns[1]) -> nz[u] = LEAST(ns[0], ns[1]); changed = 1 :: else fi;
#endif
            if :: fz[u] != LIVE && fz[u] > nz[u] -> most = nz[u]; lower_z(u) :: else fi;
            if :: fz[u] == LIVE && done[u] > nz[u] -> most = LEAST(upto_z[u], nz[u]); lower_z(u) :: else fi;
            v = 0;
            do
            :: v < 2 ->
                at = AT(u, v);
                /* M: who stays at top took nothing that its sender may do otherwise, or twice */
#ifdef DROP_WHAT_CAME_FROM_A_STORE_WAS_DELIVERED
                held = UPTO(got[at] & ~BELOW(since_z[v]));
#else
                held = MOST(UPTO(got[at]), since_z[v]);
#endif
                if :: fs[u] != LIVE && fz[v] == LIVE && held > fs[u] -> most = LEAST(upto_z[v], nz[v]); lower_z(v) :: else fi;
#ifndef DROP_NOBODY_IS_AHEAD_ON_ITS_OWN_WORKER
                /* nobody is ahead of a sender on its own worker */
                if :: u == v && fs[u] != LIVE && fz[v] != LIVE && fz[v] > fs[u] -> most = fs[u]; lower_z(v) :: else fi;
#endif
                /* D: what the sender no longer holds, the receiver must have */
                if
                :: fz[v] == LIVE && !gone_s[u] -> held = TOP
                :: fz[v] == LIVE && gone_s[u] -> held = upto_z[v]
                :: else -> held = fz[v]
                fi;
                if
                :: held < TOP && gone_s[u] && fs[u] > held -> most = held; lower_s(u)
                :: held < TOP && !gone_s[u] && cover[at] > held && fs[u] == LIVE && pos[u] + sent[u] > held ->
                    most = LEAST(pos[u], ns[u]); lower_s(u)
                :: held < TOP && !gone_s[u] && cover[at] > held && fs[u] != LIVE && fs[u] > held -> most = held; lower_s(u)
                :: else
                fi;
                v++
            :: else -> break
            od;
            u++
        :: else -> break
        od;
        if :: !changed -> break :: else fi
    od
}

/* A round in which the workers in `dead` have lost their memory; 0: another worker, which has no part in this, has. */
inline round(dead) {
    d_step {
        u = 0;
        do
        :: u < 2 ->
            gone_s[u] = !ALIVE(dead, u); gone_z[u] = gone_s[u];
#ifdef DROP_WHO_CAME_BACK_IS_COMPLETE
            upto_z[u] = LEAST(done[u], LEAST(pos[0], pos[1]));
#else
            upto_z[u] = done[u];
#endif
            MUST(what_came_back_is_complete, !ALIVE(dead, u) || upto_z[u] >= since_z[u]);
            u++
        :: else -> break
        od;
        do
        :: treated = TREATED && dead != 3;
            descend();
            /* below where it came back from its store, memory does not reach (Options._between) */
            stuck = 0; u = 0;
            do
            :: u < 2 ->
                if
                :: !gone_s[u] && fs[u] > 0 && fs[u] < since_s[u] && !(cuts[u] & BIT(fs[u] - 1)) -> gone_s[u] = 1; stuck = 1
                :: else
                fi;
                if
                :: !gone_z[u] && fz[u] > 0 && fz[u] < since_z[u] && !(cuts[u] & BIT(fz[u] - 1)) -> gone_z[u] = 1; stuck = 1
                :: else
                fi;
                u++
            :: else -> break
            od;
            if :: !stuck -> break :: else fi
        od;
        MUST(decisions_keep_what_was_promised, fs[0] >= low && fs[1] >= low && fz[0] >= low && fz[1] >= low);
        /* Of what is under way that stays whose ends both lived, and no receiver that goes back; that one is sent anew what is kept. */
        u = 0;
        do
        :: u < 2 ->
            v = 0;
            do
            :: v < 2 ->
                at = AT(u, v);
#ifdef DROP_QUEUES_ARE_REBUILT_WHOLLY
                held = (ALIVE(dead, u) && ALIVE(dead, v) -> way[at] & ~(fz[v] == LIVE -> 0 : BELOW(fz[v])) : 0);
#else
                held = (ALIVE(dead, u) && ALIVE(dead, v) && fz[v] == LIVE -> way[at] : 0);
#endif
                if :: fs[u] != LIVE -> held = held & BELOW(fs[u]) :: else fi;
                again = 0;
                if
                :: ALIVE(dead, u) && fz[v] != LIVE ->
                    again = kept[at] & ~BELOW(MOST(fz[v], cover[at]));
#ifndef DROP_WHO_GOES_BACK_FORGETS_WHAT_IT_KEPT
                    if :: fs[u] != LIVE -> again = again & BELOW(fs[u]) :: else fi
#endif
                :: else
                fi;
                MUST(no_record_comes_twice, (held & again) == 0);
                way[at] = held | again;
                /* what is kept */
                if
                :: !ALIVE(dead, u) ->
                    kept[at] = 0;
#ifdef DROP_COVERAGE_BEGINS_AT_THE_CUT
                    cover[at] = 0
#else
                    cover[at] = fs[u]
#endif
                :: else ->
#ifndef DROP_WHO_GOES_BACK_FORGETS_WHAT_IT_KEPT
                    if :: fs[u] != LIVE -> kept[at] = kept[at] & BELOW(fs[u]) :: else fi
#endif
                fi;
                v++
            :: else -> break
            od;
            u++
        :: else -> break
        od;
        /* state: who lives drops what lies outside; a dead one reads what it saved */
        v = 0;
        do
        :: v < 2 ->
            if
            :: fz[v] != LIVE ->
                u = 0;
                do
                :: u < 2 ->
                    if :: !ALIVE(dead, v) -> got[AT(u, v)] = saved[AT(u, v)] :: else fi;
#ifdef DROP_INCOMPLETE_TIMES_ARE_DROPPED
                    if :: !ALIVE(dead, v) -> got[AT(u, v)] = got[AT(u, v)] & BELOW(fz[v]) :: else fi;
#else
                    got[AT(u, v)] = got[AT(u, v)] & BELOW(fz[v]);
#endif
                    saved[AT(u, v)] = saved[AT(u, v)] & BELOW(fz[v]);
                    u++
                :: else -> break
                od;
                /* unless something is forgotten, or a cut was read that others do not have */
                MUST(survivors_keep_what_they_have, !treated || !ALIVE(dead, v) || fz[v] >= done[v] ||
                    cover[AT(0, 1)] + cover[AT(1, 0)] + since_s[0] + since_s[1] + since_z[0] + since_z[1] > 0);
                done[v] = fz[v];
                since_z[v] = (ALIVE(dead, v) -> LEAST(since_z[v], fz[v]) : fz[v]);
                have[v] = fz[v]
            :: else ->
#ifdef DROP_SUPPRESSION_IS_CUMULATIVE
                have[v] = 0
#endif
                skip
            fi;
            if
            :: fs[v] != LIVE ->
                pos[v] = fs[v]; sent[v] = 0;
                since_s[v] = (ALIVE(dead, v) -> LEAST(since_s[v], fs[v]) : fs[v])
            :: else
            fi;
            cuts[v] = cuts[v] & BELOW(LEAST(LEAST(fs[v], fz[v]), TOP));
            v++
        :: else -> break
        od;
        u = 0; v = 0; at = 0; held = 0; again = 0; changed = 0; stuck = 0
    }
}

inline give(w, to) {
    if
    :: to != w && pos[w] < have[to] -> /* it has that: kept, and not sent */
#ifdef DROP_WHAT_IS_SUPPRESSED_IS_KEPT
        skip;
#else
        kept[AT(w, to)] = kept[AT(w, to)] | BIT(pos[w]);
#endif
#ifdef DROP_SUPPRESSION
        way[AT(w, to)] = way[AT(w, to)] | BIT(pos[w]);
#endif
    :: else ->
#ifndef DROP_SENDERS_KEEP_WHAT_THEY_SEND
        kept[AT(w, to)] = kept[AT(w, to)] | BIT(pos[w]);
#endif
        MUST(no_record_comes_twice, (way[AT(w, to)] & BIT(pos[w])) == 0);
        way[AT(w, to)] = way[AT(w, to)] | BIT(pos[w]);
    fi;
    sent[w] = 1
}

inline take(from, to, epoch) {
    way[AT(from, to)] = way[AT(from, to)] & ~BIT(epoch);
    MUST(no_record_comes_twice, (got[AT(from, to)] & BIT(epoch)) == 0);
    got[AT(from, to)] = got[AT(from, to)] | BIT(epoch)
}

inline forget(from, to, before) {
    kept[AT(from, to)] = kept[AT(from, to)] & ~BELOW(before);
    cover[AT(from, to)] = MOST(cover[AT(from, to)], before)
}

#define COMPLETE LEAST(LEAST(pos[0], pos[1]), LEAST(done[0], done[1]))
#define COMMON (cuts[0] & cuts[1])

inline cut(w) {
    d_step {
        cuts[w] = cuts[w] | BIT(COMPLETE - 1);
        saved[AT(0, w)] = got[AT(0, w)] & BELOW(COMPLETE);
        saved[AT(1, w)] = got[AT(1, w)] & BELOW(COMPLETE)
    }
}

inline rise() {
    d_step {
        at = low;
        do
        :: at < LAST(COMMON, TOP) ->
            MUST(no_record_is_lost, ((saved[AT(0, 0)] | saved[AT(0, 1)]) & BIT(at)) && ((saved[AT(1, 0)] | saved[AT(1, 1)]) & BIT(at)));
            MUST(no_record_comes_twice,
                !(saved[AT(0, 0)] & saved[AT(0, 1)] & BIT(at)) && !(saved[AT(1, 0)] & saved[AT(1, 1)] & BIT(at)));
            at++
        :: else -> break
        od;
        low = LAST(COMMON, TOP);
#ifndef DROP_KEPT_MESSAGES_GO_WITH_W
        forget(0, 0, low); forget(0, 1, low); forget(1, 0, low); forget(1, 1, low);
#endif
        MUST(kept_messages_are_collected, cover[AT(0, 1)] >= low && cover[AT(1, 0)] >= low);
        at = 0
    }
}

#define STEPS(w) \
    :: atomic { pos[w] < EPOCHS && !sent[w] -> \
        if \
        :: REPEATS -> give(w, (1 + w + pos[w]) % 2) \
        :: !REPEATS -> give(w, 0) \
        :: !REPEATS -> give(w, 1) \
        fi } \
    :: atomic { sent[w] -> d_step { pos[w]++; sent[w] = 0 } } \
    :: atomic { way[AT(0, w)] & BIT(0) -> d_step { take(0, w, 0) } } \
    :: atomic { way[AT(0, w)] & BIT(1) -> d_step { take(0, w, 1) } } \
    :: atomic { way[AT(0, w)] & BIT(2) -> d_step { take(0, w, 2) } } \
    :: atomic { way[AT(1, w)] & BIT(2) -> d_step { take(1, w, 2) } } \
    :: atomic { way[AT(1, w)] & BIT(0) -> d_step { take(1, w, 0) } } \
    :: atomic { way[AT(1, w)] & BIT(1) -> d_step { take(1, w, 1) } } \
    :: atomic { done[w] < LEAST(pos[0], pos[1]) && !((way[AT(0, w)] | way[AT(1, w)]) & BELOW(done[w] + 1)) -> done[w]++ } \
    :: atomic { COMPLETE > LAST(cuts[w], TOP) -> cut(w) } \
    :: atomic { cover[AT(w, w)] < done[w] -> d_step { forget(w, w, done[w]) } } \
    :: atomic { faults > 0 && cover[AT(w, 1 - w)] < LEAST(pos[w], 1) -> d_step { lose(w, 1 - w) } }

/* Memory is limited: the oldest that is kept may go at any time. */
#ifdef DROP_COVERAGE_SAYS_WHAT_IS_FORGOTTEN
#define lose(from, to) kept[AT(from, to)] = kept[AT(from, to)] & ~1
#else
#define lose(from, to) forget(from, to, 1)
#endif

active proctype job() {
    do
    STEPS(0)
    STEPS(1)
    :: atomic { LAST(COMMON, TOP) > low -> rise() }
    :: atomic { faults > 0 && low < TOP ->
        faults--;
        if
        :: lost = 0
        :: lost = 1
        :: lost = 2
        :: lost = 3
        fi;
        round(lost);
        lost = 0 }
    :: low == TOP -> break
    :: timeout -> MUST(everything_ends, 0)
    od
}
