/* SPDX-License-Identifier: MIT
 *
 * One run per output folder: a file in it that says which process writes there.
 */
#ifndef MONOBOLT_LOCK_H
#define MONOBOLT_LOCK_H

#define LOCK_NAME "train.lock"

typedef struct lock {
    char path[3072]; /* empty: not held */
    int file;
} lock;

/* Takes the lock of a folder, which a run that was killed may have left there. Another run that
 * is alive: a message with its process id, and a failure. Returns an exit code.            */
int lock_take(lock *l, const char *folder);

/* Removes it; does nothing if it is not held. */
void lock_release(lock *l);

#endif
