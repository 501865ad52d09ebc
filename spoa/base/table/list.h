/* SPDX-License-Identifier: MIT */
/*
 * list: intrusive lists of structures that have two members: `next`, and `link`, which points to the pointer that points to the
 * structure: the list's first pointer or the `next` of its predecessor. A structure can therefore leave its list in constant time, without
 * knowing the list. The pointers have the structure's own type, so nothing is cast; that is why these are macros. Each argument is
 * evaluated several times.
 *
 * A queue also has an `end`: a pointer to the `next` of the last structure, or to the first pointer while the queue is empty.
 */
#ifndef CELLGATE_BASE_TABLE_LIST_H
#define CELLGATE_BASE_TABLE_LIST_H

/* Inserts a node before `first`, the list's first pointer. */
#define LIST_PUSH(first, node)                  \
    do {                                        \
        (node)->next = (first);                 \
        (node)->link = &(first);                \
        if ((node)->next)                       \
            (node)->next->link = &(node)->next; \
        (first) = (node);                       \
    } while (0)

/* Removes a node from a list without an end. The node's own members stay as they are. */
#define LIST_UNLINK(node)                      \
    do {                                       \
        *(node)->link = (node)->next;          \
        if ((node)->next)                      \
            (node)->next->link = (node)->link; \
    } while (0)

/* Appends a node to a queue. */
#define LIST_APPEND(end, node) \
    do {                       \
        (node)->next = NULL;   \
        (node)->link = (end);  \
        *(end) = (node);       \
        (end) = &(node)->next; \
    } while (0)

/* Removes a node from a queue. */
#define LIST_UNLINK_FROM(end, node)            \
    do {                                       \
        *(node)->link = (node)->next;          \
        if ((node)->next)                      \
            (node)->next->link = (node)->link; \
        else                                   \
            (end) = (node)->link;              \
    } while (0)

#endif
