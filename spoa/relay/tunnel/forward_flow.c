/* SPDX-License-Identifier: MIT */
/* Back-pressure: which side is read, and how much of it. */
#include "spoa/relay/tunnel/forward.h"

/* pause before the next request for the permit, plus up to half of that at random */
#define PERMIT_PAUSE (50 * MILLISECOND)
#define SHORT_PAUSE  (100 * MILLISECOND) /* pause before the next memory check, plus up to half at random */
#define KEPT_LEAST   16384 /* bytes that may be kept for acknowledgement however short memory is */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the number of bytes to read from the client without exceeding the session's window. A message costs at most 16 for each 6 bytes
 * on the wire. A frame that has begun and does not fit yet is read as far as there is room; a frame before which nothing is kept always
 * fits. */
static size_t window_room(const struct forward *f)
{
    const struct leg *client = &f->legs[CLIENT];
    size_t window, room = f->adapter->numbers->room(f->adapter_state, &window);
    bool alone = room == window;
    uint64_t cost = client->message_len + 16, rest = ws_untold(&client->in), most;
    size_t partial = buffer_len(&client->partial);

    rest = rest > partial ? rest - partial : 0;
    uint64_t taken = cost > rest ? cost - rest : 0;
    if (cost > room)
        most = room <= taken ? 0 : room - taken < rest ? room - taken : rest;
    else if (!rest && !alone && room - cost < window / 4)
        return 0;
    else
        most = rest + (room - cost) / 8 * 3;
    if (alone && !most)
        return 1;
    return most < LEG_PAUSE ? (size_t)most : LEG_PAUSE;
}

/* Returns true within a message of the client that is acknowledged as one. */
static bool is_inside_kept(const struct forward *f)
{
    const struct leg *client = &f->legs[CLIENT];
    return f->adapter->numbers && (client->message_len || buffer_len(&client->partial));
}

/* Returns the number of bytes that fit into memory which the tunnel has allocated already, with the heads of more fragments; 0 if a whole
 * read does not fit. */
static size_t spare_room(const struct forward *f, enum side from)
{
    size_t spare = f->adapter->numbers ? buffer_spare(&f->legs[other(from)].out.frames) : 0;
    size_t partial = buffer_len(&f->legs[from].partial);
    size_t room = spare > partial ? (spare - partial) / 64 * 63 : 0;

    return room >= READ_LEAST ? room : 0;
}

/* Returns the size of the buffers that receive data from that side. */
static size_t taken_for(const struct forward *f, enum side from)
{
    const struct buffer *frames = &f->legs[other(from)].out.frames, *partial = &f->legs[from].partial;

    return buffer_len(frames) + buffer_spare(frames) + buffer_len(partial) + buffer_spare(partial);
}

size_t forward_memory(const struct forward *f, enum side from)
{
    /* acknowledgements follow output: kept input cannot be freed until the output before them is read */
    bool keeps = f->adapter->numbers && send_queue_len(&f->legs[WORKER].out);
    bool whole = from == CLIENT ? is_inside_kept(f) : keeps || forward_needs_permit(f);
    size_t more = f->place.host->may_hold(f->place.io, whole, taken_for(f, from));
    size_t spare = spare_room(f, from);

    return more > spare ? more : spare;
}

/* Returns true if there is memory to read from that side. The result is cached for one decision, because other threads allocate and free
 * memory meanwhile. */
static bool has_memory(struct forward *f, enum side from)
{
    if (!f->looked[from])
        f->has_memory[from] = forward_memory(f, from) > 0;
    f->looked[from] = true;
    return f->has_memory[from];
}

/* Returns true if more input may be kept until it is acknowledged. */
static bool may_keep(struct forward *f)
{
    return send_queue_len(&f->legs[WORKER].out) + buffer_len(&f->legs[CLIENT].partial) + READ_LEAST <=
               KEPT_LEAST ||
           has_memory(f, CLIENT);
}

/* Returns true if there is room for the relay's own answers, mostly Pongs: a side that does not read them is not read. Without a peer
 * these answers are the only output; with one they need room beside the largest amount of held output. */
static bool may_answer(struct forward *f, enum side from, bool there)
{
    const struct send_queue *out = &f->legs[from].out;

    if (!there)
        return send_queue_len(out) < READ_LEAST || (send_queue_len(out) < LEG_PAUSE && has_memory(f, from));
    return from == WORKER || !f->adapter->numbers || send_queue_len(out) + LEG_PAUSE <= out->frames.limit;
}

/* Returns true if more may be read for the peer. At LEG_PAUSE held bytes reading pauses until all of them are sent. */
static bool may_read_for(struct forward *f, enum side from)
{
    const struct leg *peer = &f->legs[other(from)];
    bool there = f->there[other(from)];

    if (!may_answer(f, from, there))
        return false;
    if (peer->out.unseen)
        return false;
    if (f->adapter->numbers && from == CLIENT)
        return window_room(f) > 0 && peer->out.controls < LEG_SPARE &&
               (there ? may_keep(f) : has_memory(f, CLIENT));
    if (send_queue_empty(&peer->out) && (there || !buffer_len(&f->legs[from].partial)))
        return true;
    /* without acknowledgements the worker stops at its window; reading goes on until then, because Pings and acknowledgements follow that
     * data */
    if (f->adapter->numbers && there)
        return send_queue_len(&peer->out) < f->place.settings->buffer && has_memory(f, from);
    if (there)
        return f->legs[from].reading && send_queue_len(&peer->out) < LEG_PAUSE && has_memory(f, from);
    return send_queue_len(&peer->out) + READ_LEAST <= f->place.settings->buffer && has_memory(f, from);
}

bool forward_needs_permit(const struct forward *f)
{
    return f->there[WORKER] && f->mode <= FORWARD_SERVING && f->adapter->collects &&
           f->adapter->collects(f->adapter_state);
}

/* Returns true if the worker's replay may be read. Without a permit the replay stays with the worker. */
static bool may_collect(struct forward *f, uint64_t now)
{
    bool needs = forward_needs_permit(f), has = !needs || f->place.host->permits_replay(f->place.io);

    f->replay_short = needs && has && !forward_memory(f, WORKER);
    if (has && !f->replay_short) {
        f->permit_at = 0;
        return true;
    }
    if (now >= f->permit_at)
        f->permit_at = now + PERMIT_PAUSE + place_random(&f->place) % (PERMIT_PAUSE / 2);
    return false;
}

/* Returns true if only memory freed by other tunnels lets this tunnel continue: held data is freed when its end has arrived, and the rest
 * of it is not read. Waiting for a worker that acknowledges nothing, or a client that reads nothing, does not count. */
static bool is_short(struct forward *f)
{
    if (f->mode != FORWARD_SERVING || !f->there[WORKER])
        return false;
    if (f->replay_short || !f->adapter->numbers)
        return f->replay_short;
    return (!f->legs[CLIENT].reading && window_room(f) && !may_keep(f)) ||
           (!f->legs[WORKER].reading && send_queue_len(&f->legs[CLIENT].out) < f->place.settings->buffer &&
            !has_memory(f, WORKER));
}

/* Updates short_for. A moment with memory does not reset the time, but shortens it by as much. */
static void note_shortage(struct forward *f, uint64_t now)
{
    uint64_t passed = now - f->short_noted;

    f->short_for = f->short_at ? least(f->short_for + passed, FORWARD_SHORT)
                               : f->short_for - least(f->short_for, passed);
    f->short_noted = now;
    if (!is_short(f))
        f->short_at = 0;
    else if (now >= f->short_at)
        f->short_at = now + SHORT_PAUSE + place_random(&f->place) % (SHORT_PAUSE / 2);
}

bool forward_waits(const struct forward *f)
{
    return f->mode == FORWARD_SERVING && f->short_at && f->short_for >= FORWARD_SHORT &&
           (f->replay_short || is_inside_kept(f));
}

void forward_decide(struct forward *f, uint64_t now)
{
    bool hears = forward_hears_client(f), closing = f->mode >= FORWARD_CLOSING && !hears;
    /* after its Close a client may end its side at once and still wait for the answer */
    bool done = f->legs[CLIENT].close_in;

    f->looked[CLIENT] = f->looked[WORKER] = false;
    leg_read(&f->legs[CLIENT], f->there[CLIENT] && !done && (closing || may_read_for(f, CLIENT)), now);
    bool read = f->there[WORKER] && !hears && may_read_for(f, WORKER);
    f->replay_short = false;
    if (!read)
        f->permit_at = 0;
    leg_read(&f->legs[WORKER], read && may_collect(f, now), now);
    note_shortage(f, now);
}

/* Returns the number of bytes that may be held for an absent peer, at least enough for a Ping or a Close. */
static size_t hold_room(const struct forward *f, size_t held)
{
    size_t most = f->place.settings->buffer;

    return held + READ_LEAST > most ? READ_LEAST : most - held;
}

/* The memory is checked again, because other tunnels may have taken it after forward_decide. */
size_t forward_room(const struct forward *f, enum side from)
{
    bool there = f->there[other(from)];
    bool closing = f->mode >= FORWARD_CLOSING && !forward_hears_client(f);
    size_t most = there || closing ? LEG_PAUSE : hold_room(f, send_queue_len(&f->legs[other(from)].out));
    size_t memory = forward_memory(f, from);

    if (memory < most)
        most = memory > READ_LEAST ? memory : READ_LEAST;
    size_t window = f->adapter->numbers && from == CLIENT && !closing ? window_room(f) : most;

    return window < most ? window : most;
}

uint64_t forward_looks_at(const struct forward *f)
{
    uint64_t due = f->permit_at ? f->permit_at : UINT64_MAX;
    return f->short_at ? least(due, f->short_at) : due;
}
