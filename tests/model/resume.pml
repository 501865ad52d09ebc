/* SPDX-License-Identifier: MIT */
/*
 * resume: docs/resume-protocol.md as a model for spin. One tunnel: a relay with its client, two workers, a
 * session with its process, and a network that loses whatever it likes, a bounded number of times.
 *
 * A message is two halves, so that it can be cut. What is sent carries its true number as its content; relay
 * and session do not look at it: they count, and the ghosts `delivered` and `eaten` tell whether they count right.
 *
 * A leg is a queue in each direction: all that lies between relay and session, a worker's memory and the
 * kernels included. Each end learns of a loss on its own, at any time after it, and what it has not taken by then is
 * gone. A leg's index is its attempt. A dial that is lost may still arrive at the session, at any time: a ghost.
 *
 * Sizes: OUTPUTS INPUTS WINDOW LOSSES MOVES. Scenarios: LEAVES (the client ends the tunnel, else the
 * session does), EXPIRES (the grace may be over at any time), THIEF (another caller with the same id),
 * BLOCKS (the process reads an input only when its output so far is gone). Mutations: tests/model/run.
 */
#ifndef OUTPUTS
#define OUTPUTS 2
#endif
#ifndef INPUTS
#define INPUTS 2
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef LOSSES
#define LOSSES 2
#endif
#ifndef MOVES
#define MOVES 1
#endif
#ifdef THIEF
#define THEFTS 1
#else
#define THEFTS 0
#endif

/* a move costs an attempt, a loss up to two: the one that is given up, and the leg that it fences as a ghost */
#define LEGS     (2 + 2 * LOSSES + MOVES + 2 * THEFTS)
#define STOLEN   LEGS /* the thief's leg, the last one */
#define IN_WIRE  2
#define ROOM(q)  (len(q) < IN_WIRE)
#define ABSENT   255

#define HEAD 1 /* first half of a message */
#define TAIL 2 /* second half */
#define ACK  3
#define END  4 /* mark and Close */

/* what has become of a request */
#define NOTHING  0
#define ASKED    1 /* on its way to the session */
#define ANSWERED 2 /* 101 on its way to the relay */
#define CONFLICT 3 /* 409 */
#define GONE     4 /* 410 */

typedef leg_type {
    byte state;
    byte attempt;
    byte ask;  /* recv of the request */
    byte recv; /* of the 101 or 410 */
    byte next;
    bit worker;
    bit relay_left; /* the relay has nothing to do with it any more */
    bit relay_lost, session_lost; /* this end will find the leg lost */
    bit taken_over;               /* fenced: 4001 is on its way to the relay */
};
leg_type leg[LEGS + 1];
chan up[LEGS + 1] = [IN_WIRE] of {byte, byte};
chan down[LEGS + 1] = [IN_WIRE] of {byte, byte};

/* ghosts: what client and process have got, in halves and in messages */
byte delivered, eaten, made;
bit client_saw_end, relay_done, expired, stolen;
byte losses = LOSSES;

inline drain(queue)
{
    do
    :: nempty(queue) -> queue?_, _
    :: empty(queue) -> break
    od
}

/* nothing is left of it that anybody could see: equal states are to look equal */
inline bury(l)
{
    drain(up[l]);
    drain(down[l]);
    leg[l].state = NOTHING;
    leg[l].attempt = 0;
    leg[l].ask = 0;
    leg[l].recv = 0;
    leg[l].next = 0;
    leg[l].worker = 0;
    leg[l].relay_left = 0;
    leg[l].relay_lost = 0;
    leg[l].session_lost = 0;
    leg[l].taken_over = 0;
}

inline tidy(l)
{
    if
#ifdef OLD_ANSWER
    :: leg[l].state == ANSWERED && leg[l].ask -> skip
#endif
    :: leg[l].relay_left && l != current && leg[l].state != ASKED -> bury(l)
    :: else
    fi
}

byte current; /* the session's leg; 0: none */
short asked;  /* a bit for each leg whose request is on its way */

/* ---- session ---- */
byte highest;    /* attempt seen */
byte consumed;   /* input */
byte consumed_told;
byte forgotten;  /* output acknowledged */
byte out_next;   /* item to be sent on the current leg */
bit out_half;    /* its first half is sent */
byte in_half;    /* content of a message whose first half is here */
bit known, over;
chan held = [WINDOW + 1] of {byte, byte};  /* complete, not consumed: no room */
chan input = [1] of {byte, byte};          /* consumed, the process has not read it */

#define SESSION_END (OUTPUTS + 1)
#define CALLER_END  (INPUTS + 1)

#ifdef LEAVES
#define LAST_OUTPUT OUTPUTS
#define LAST_INPUT  CALLER_END
#else
#define LAST_OUTPUT (eaten == INPUTS -> SESSION_END : OUTPUTS)
#define LAST_INPUT  INPUTS
#endif

#ifdef BLOCKS
#define MAY_READ(i) (forgotten >= (i < OUTPUTS -> i : OUTPUTS))
#else
#define MAY_READ(i) true
#endif

#ifdef STOPS_READING /* mutation: the session reads its leg only while the process reads */
#define READS (empty(input) && empty(held))
#else
#define READS true
#endif

inline session_leaves_leg()
{
    drain(held);
    in_half = 0;
    out_half = 0;
    out_next = 0;
    consumed_told = 0;
}

inline session_forgets()
{
    session_leaves_leg();
    drain(input);
    if
    :: current ->
        drain(up[current]);
        leg[current].relay_lost = 1;
        gone = current;
        current = 0;
        tidy(gone);
        gone = 0
    :: else
    fi;
    over = 1;
    in_half = 0
}

inline session_accepts(l)
{
#ifndef NO_FENCE /* mutation: what comes from an older leg still counts */
    if
    :: current -> drain(up[current])
    :: else
    fi;
    session_leaves_leg();
#else
    out_half = 0;
#endif
    gone = current;
    current = l;
    if
    :: gone ->
        leg[gone].taken_over = 1;
        leg[gone].relay_lost = 1;
        tidy(gone);
        gone = 0
    :: else
    fi;
    highest = leg[l].attempt;
    if
    :: leg[l].ask != ABSENT && leg[l].ask > forgotten -> forgotten = leg[l].ask
    :: else
    fi;
    consumed_told = consumed;
    out_next = forgotten + 1;
    leg[l].recv = consumed;
    leg[l].next = out_next;
    leg[l].state = ANSWERED;
}

inline session_begins_anew()
{
    known = 1;
    made++;
    /* a tunnel begins one session, whatever arrives late */
    assert(made == 1);
}

inline session_asked(l)
{
    if
#ifdef SILENT_NEW /* mutation: a tunnel that is not known any more begins anew */
    :: over && leg[l].attempt > highest ->
        over = 0;
        consumed = 0;
        forgotten = 0;
        session_accepts(l)
#endif
#ifdef NO_TOMBSTONE /* mutation: what is over is not remembered */
    :: over && leg[l].ask == ABSENT -> session_begins_anew()
#endif
#ifdef EQUAL_ATTEMPT /* mutation: a ghost may take over */
    :: !over && known && leg[l].attempt <= highest -> session_accepts(l)
#else
    :: (over || known) && leg[l].attempt <= highest -> leg[l].state = CONFLICT
#endif
#ifndef SILENT_NEW
    :: over && leg[l].attempt > highest -> leg[l].state = GONE; leg[l].recv = consumed
#endif
    :: !over && known && leg[l].attempt > highest -> session_accepts(l)
    :: !over && !known && leg[l].ask == ABSENT -> session_begins_anew(); session_accepts(l)
    :: !over && !known && leg[l].ask != ABSENT -> leg[l].state = GONE
    fi
}

inline session_reads(l)
{
    up[l]?kind, n;
    if
    :: kind == HEAD ->
        assert(in_half == 0);
        in_half = n;
#ifdef EARLY_ACK /* mutation: acknowledged before it is complete and stored */
        if
        :: ROOM(down[l]) -> down[l]!ACK(consumed + len(held) + 1)
        :: else
        fi
#endif
    :: kind == TAIL ->
        assert(in_half == n);
        in_half = 0;
        held!HEAD(n)
    :: kind == END -> held!END(n)
    :: kind == ACK ->
        if
        :: n > forgotten -> forgotten = n
        :: else
        fi;
        if
        :: forgotten == SESSION_END -> session_forgets()
        :: else
        fi
    fi;
    kind = 0;
    n = 0;
}

active proctype session()
{
    byte kind, n, l, gone;

    do
    :: atomic { !over && current && READS && nempty(up[current]) -> session_reads(current) }
#ifdef NO_FENCE
    :: atomic {
        l = 1;
        do
        :: l <= LEGS && (l == current || len(up[l]) == 0 || leg[l].state != ANSWERED) -> l++
        :: else -> break
        od;
        l <= LEGS && !over -> session_reads(l);
        l = 0
       }
#endif
    /* takes as much as there is room for */
    :: atomic { nempty(held) && empty(input) -> held?kind, n; input!kind(n); consumed++; kind = 0; n = 0 }
    /* acknowledges */
    :: atomic { current && consumed > consumed_told && !over && ROOM(down[current]) && !leg[current].relay_left ->
        down[current]!ACK(consumed); consumed_told = consumed }
    /* sends */
    :: atomic { current && !over && ROOM(down[current]) && !leg[current].relay_left && out_next <= LAST_OUTPUT &&
        out_next <= forgotten + WINDOW ->
        if
        :: out_next == SESSION_END -> down[current]!END(out_next); out_next++
        :: out_next < SESSION_END && !out_half -> down[current]!HEAD(out_next); out_half = 1
        :: out_next < SESSION_END && out_half -> down[current]!TAIL(out_next); out_half = 0; out_next++
#ifdef FORGETS_SENT /* mutation: output is not kept until it is acknowledged */
            ; forgotten = out_next - 1
#endif
        fi
#ifdef LOSES_END /* mutation: the end is no item that is kept */
        ; if
        :: out_next > SESSION_END -> session_forgets()
        :: else
        fi
#endif
       }
    /* the current leg is lost; what was not read goes with it */
    :: atomic { current && leg[current].session_lost ->
        l = current;
        session_leaves_leg();
        current = 0;
        drain(up[l]);
        leg[l].relay_lost = 1;
        tidy(l);
        l = 0 }
    /* grace: longer than a relay tries, unless the scenario says otherwise */
#ifdef EXPIRES
    :: atomic { known && !over && !current -> session_forgets(); expired = 1 }
#else
    :: atomic { known && !over && !current && relay_done -> session_forgets() }
#endif
    /* a request arrives, in any order */
    :: atomic { asked ->
        l = LEGS;
        do
        :: leg[l].state == ASKED -> break
        :: asked & ((1 << (l - 1)) - 1) -> l--
        od;
        asked = asked & ~(1 << (l - 1));
        session_asked(l);
        tidy(l);
        l = 0 }
    /* what was consumed is read */
    :: atomic { nempty(input) && MAY_READ(eaten + 1) -> input?kind, n;
        if
        :: kind == END ->
            assert(eaten == INPUTS);
            if
            :: current && ROOM(down[current]) -> down[current]!ACK(consumed)
            :: else
            fi;
            session_forgets()
        :: else ->
            /* consumed by the session is a prefix of sent */
            assert(n == eaten + 1 && n <= INPUTS);
            eaten++
        fi;
        kind = 0;
        n = 0 }
    :: atomic { over && relay_done && !asked -> break }
    od
}

/* ---- relay ---- */
byte serving, dial; /* legs; 0: none */
byte attempt;       /* highest dialled */
byte recv;          /* output received */
byte recv_told;
byte acknowledged;  /* input */
byte in_next;       /* item to be sent on the leg */
bit in_sent_half;
byte out_place;     /* number of the item that comes next on the leg */
bit out_seen_half;  /* its first half has come on this leg */
bit passed_half;    /* the client has the first half of item recv + 1 */
bit answered;       /* a 101 was ever read */
bit target;         /* the worker the directory names */
byte moves = MOVES;

#ifdef LEAVES
#define FINISHED (acknowledged == CALLER_END)
#else
#define FINISHED false
#endif

inline relay_parts(l)
{
    drain(down[l]);
    leg[l].session_lost = 1;
    leg[l].relay_lost = 1;
    leg[l].relay_left = 1;
    tidy(l)
}

inline relay_ends()
{
    if
    :: dial -> relay_parts(dial)
    :: else
    fi;
    if
    :: serving -> relay_parts(serving)
    :: else
    fi;
    dial = 0;
    serving = 0;
    relay_done = 1;
    goto ended
}

inline relay_gives_up()
{
    /* no tunnel ends but by its end, unless the grace is over or somebody has stolen it */
    assert(expired || stolen);
    relay_ends()
}

inline relay_passes(half)
{
    /* delivered to the client is a prefix of produced */
    assert(2 * (n - 1) + half == delivered);
    delivered++
}

#ifdef NO_DROP /* mutation: what was received twice is passed on twice */
#define DUPLICATE false
#else
#define DUPLICATE (out_place <= recv)
#endif
#ifdef NO_SKIP /* mutation: a message that was cut is passed on again from its start */
#define CONTINUES false
#else
#define CONTINUES passed_half
#endif

inline relay_reads()
{
    down[serving]?kind, n;
    if
    :: kind == HEAD ->
        if
        :: DUPLICATE || CONTINUES
        :: else -> relay_passes(0); passed_half = 1
        fi;
        out_seen_half = 1
    :: kind == TAIL ->
        assert(out_seen_half);
        if
        :: DUPLICATE
        :: else -> relay_passes(1); passed_half = 0; recv++
        fi;
        out_seen_half = 0;
        out_place++
    :: kind == END ->
        assert(delivered == 2 * OUTPUTS && out_place == SESSION_END);
        recv = n;
        client_saw_end = 1
    :: kind == ACK ->
        if
        :: n > acknowledged -> acknowledged = n
        :: else
        fi
    fi;
    kind = 0;
    n = 0
}

inline relay_swaps(l)
{
    if
    :: serving -> relay_parts(serving)
    :: else
    fi;
    serving = l;
    in_sent_half = 0;
#ifdef FORGETS_INPUT /* mutation: what was sent on the lost leg is forgotten */
    in_next = (in_next > leg[l].recv + 1 -> in_next : leg[l].recv + 1);
#else
    in_next = leg[l].recv + 1;
#endif
    acknowledged = leg[l].recv;
#ifdef NO_NEXT /* mutation: the first item is the one that was asked for */
    out_place = (leg[l].ask == ABSENT -> 0 : leg[l].ask) + 1;
#else
    out_place = leg[l].next;
#endif
    out_seen_half = 0;
    recv_told = (leg[l].ask == ABSENT -> 0 : leg[l].ask);
    answered = 1;
    leg[l].recv = 0;
    leg[l].next = 0;
    leg[l].ask = 0
}

inline relay_dials()
{
    attempt++;
    assert(attempt < STOLEN);
    dial = attempt;
    leg[dial].attempt = attempt;
    leg[dial].worker = target;
    leg[dial].ask = (answered -> recv : ABSENT);
    leg[dial].state = ASKED;
    asked = asked | (1 << (dial - 1))
}

active proctype relay()
{
    byte kind, n, l;

    do
    :: atomic { !serving && !dial -> relay_dials() }
    /* the directory names the other worker: make before break */
    :: atomic { serving && !dial && moves -> moves--; target = !target; relay_dials() }
    :: atomic { dial && leg[dial].state == ANSWERED ->
        l = dial;
        dial = 0;
        if
        :: leg[l].recv < acknowledged || leg[l].next > recv + 1 -> relay_gives_up()
        :: else -> relay_swaps(l)
        fi;
        l = 0 }
    :: atomic { dial && leg[dial].state == CONFLICT -> bury(dial); dial = 0 }
    :: atomic { dial && leg[dial].state == GONE ->
        if
        :: leg[dial].recv == CALLER_END -> bury(dial); dial = 0; relay_ends()
        :: else -> bury(dial); dial = 0; relay_gives_up()
        fi }
    /* gives the attempt up: its request may still arrive */
    :: atomic { dial && leg[dial].relay_lost -> relay_parts(dial); dial = 0 }
#ifdef OLD_ANSWER /* mutation: the 101 of an attempt that was given up is believed */
    :: atomic { serving > 1 && leg[serving - 1].state == ANSWERED && leg[serving - 1].ask &&
        leg[serving - 1].relay_left ->
        in_next = leg[serving - 1].recv + 1;
        in_sent_half = 0;
        leg[serving - 1].state = NOTHING }
#endif
    :: atomic { serving && nempty(down[serving]) ->
        relay_reads();
        if
        :: FINISHED -> relay_ends()
        :: client_saw_end && ROOM(up[serving]) -> up[serving]!ACK(recv); relay_ends()
        :: client_saw_end && !ROOM(up[serving]) -> relay_ends()
        :: else
        fi }
    :: atomic { serving && serving == current && recv > recv_told && ROOM(up[serving]) ->
#ifndef NO_ACK /* mutation: output is never acknowledged on a leg */
        up[serving]!ACK(recv);
#endif
        recv_told = recv }
    /* what is sent to nobody is not modelled */
    :: atomic { serving && serving == current && in_next <= LAST_INPUT && in_next <= acknowledged + WINDOW && ROOM(up[serving]) ->
        if
        :: in_next == CALLER_END -> up[serving]!END(in_next); in_next++
        :: in_next < CALLER_END && !in_sent_half -> up[serving]!HEAD(in_next); in_sent_half = 1
        :: in_next < CALLER_END && in_sent_half -> up[serving]!TAIL(in_next); in_sent_half = 0; in_next++
        fi }
    /* 4001, if there was one, need not arrive */
    :: atomic { serving && leg[serving].relay_lost ->
        relay_parts(serving);
        serving = 0 }
    :: atomic { serving && leg[serving].taken_over ->
#ifdef FINAL_4001 /* mutation: 4001 is final whenever nothing is being dialled */
        l = !dial;
#else
        l = (leg[serving].attempt == attempt -> 1 : 0);
#endif
        if
        :: l -> relay_gives_up()
        :: else -> relay_parts(serving); serving = 0
        fi }
    od;
ended:
    skip
}

/* ---- the world ---- */
inline lose(l)
{
    leg[l].relay_lost = 1;
    leg[l].session_lost = 1
}

/* A leg is cut, or a worker dies with all its legs and comes back; a leg is lost with what is on it, whenever its ends
 * notice. */
active proctype network()
{
    byte l;

end:
    do
    :: atomic { losses && serving && !leg[serving].relay_lost -> losses--; lose(serving) }
    :: atomic { losses && dial && !leg[dial].relay_lost -> losses--; lose(dial) }
    :: atomic { losses && serving && dial && leg[serving].worker == leg[dial].worker &&
        !leg[serving].relay_lost && !leg[dial].relay_lost -> losses--; lose(serving); lose(dial) }
    od
}

#ifdef THIEF
/* Another page with the same id: it takes the tunnel over, and leaves some time later. */
active proctype thief()
{
end:
    atomic { attempt ->
        leg[STOLEN].attempt = attempt + 1;
        leg[STOLEN].ask = (answered -> recv : ABSENT);
        leg[STOLEN].state = ASKED;
        leg[STOLEN].relay_left = 1;
        stolen = 1;
        asked = asked | (1 << (STOLEN - 1)) };
end_taken:
    atomic { current == STOLEN -> leg[STOLEN].session_lost = 1 }
}
#endif
