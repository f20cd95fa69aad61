/* What the parts of the compiled decoder know of each other. */

#ifndef ASYNCCONSUMER_NATIVE_H
#define ASYNCCONSUMER_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "reader.h"

/* --- record.c: one record, as the user sees it ------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *topic, *partition, *offset, *timestamp, *key, *value, *headers; /* Python reads slots fastest */
    signed char timestamp_type;
} Record;

extern PyTypeObject Record_Type;
int record_prepare(PyObject *module);

/* Where one record lies in the bytes; nothing is copied and no object made yet. */
typedef struct {
    int64_t offset, timestamp;
    int8_t timestamp_type;
    const uint8_t *key, *value;       /* NULL: null */
    int32_t key_length, value_length;
    const uint8_t *headers, *headers_end;
    int32_t header_count;
    const uint8_t *start;             /* of the record itself: what unread goes back to */
    int64_t next_offset_before;
} ParsedRecord;

PyObject *record_create(PyObject *topic, PyObject *partition, const ParsedRecord *parsed);

/* The headers of a record as a tuple, which is the same object for all records without headers. */
PyObject *headers_create(const ParsedRecord *parsed);

/* A Record of parts that other records were made of. */
PyObject *record_create_from_parts(PyObject *topic, PyObject *partition, PyObject *offset, PyObject *timestamp,
                                   signed char timestamp_type, PyObject *key, PyObject *value, PyObject *headers);

enum { WORK_BETWEEN_PAUSES = 4 << 20 }; /* bytes decompressed before the event loop runs again */

/* As asyncconsumer.records.pauses.Pause: more follows, when the event loop ran or when prepare() was called. */
enum Pause { NOT_PAUSED, PAUSED_FOR_LOOP, PAUSED_FOR_BODY };

/* --- walk.c, batch.c, legacy.c: from batch to batch, from record to record -------------------------- */

/* A compressed body, and what is known of it. */
typedef struct {
    const uint8_t *at;                /* NULL: there is none */
    int64_t length;
    int codec;
    int64_t limit;                    /* bytes that it may decompress to */
    int64_t resume;                   /* the offset behind it, where to go on if it is damaged */
    int64_t size;                     /* bytes that it did decompress to */
} Packed;

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs;
    PyObject *topic, *partition;      /* shared by every record */
    Py_buffer view;                   /* view.obj is NULL once released */
    Py_ssize_t size;
    const uint8_t *at, *end;          /* the entries not looked at yet */
    int64_t floor;                    /* next_offset: nothing below it is handed out */
    int64_t ceiling;                  /* nor anything from here on */
    int64_t given;                    /* the offset of the record handed out last */

    /* the batch in hand */
    const uint8_t *record, *body_end; /* its records not looked at yet */
    int64_t left;                     /* how many of them */
    int64_t base_offset, last_offset; /* legacy: base_offset is what relative offsets count from */
    int64_t stand;                    /* the offset that an error of this batch names */
    int64_t base_timestamp;           /* with append_time: the time of every record */
    int8_t magic, timestamp_type;
    bool append_time, inflated;

    /* what the caller allows */
    int64_t max_decompressed_bytes, max_batch;
    bool check_crc;

    /* read_committed */
    PyObject *aborted;                /* sorted list of (first offset, producer id), or NULL */
    Py_ssize_t aborted_at;
    PyObject *aborting;               /* set of the producers inside an aborted transaction */

    PyObject *bodies;                 /* the cache that decompressed bodies are charged to, or NULL */
    bool charged;                     /* it knows of us */
    Packed packed;                    /* the body in hand, compressed */
    PyObject *room;                   /* Slab with the decompressed body in hand, or a part of it, or NULL */
    const uint8_t *body_start;        /* of what is in memory of it */
    int64_t body_at;                  /* and where in the body that is */
    bool away;                        /* records of the body are to come that are not in memory */
    int64_t position;                 /* where in the body these begin */
    int64_t over;                     /* bytes behind the last record that are not in memory any more */
    int64_t worked;                   /* bytes decompressed since the event loop last ran */
    bool cooperative;                 /* stop where the event loop should run */
    uint8_t paused;                   /* a Pause: why it stopped last */
    bool preparing;                   /* a thread opens the next body, for as long as that takes */
    bool pinned;                      /* the record taken last may be put back: see records_take */
    bool closing;                     /* close() was called while `preparing` or `pinned` */
    PyObject *lent;                   /* list that gets a copy of every inflated body, or NULL */
    PyObject *body;                   /* the inflated body in hand if it is lent, or NULL */
    int64_t inflated_bytes;           /* of all bodies since a table was begun */
    PyObject *error;                  /* the CorruptRecords that ended it, or NULL */
    int64_t incomplete;
    int32_t leader_epoch;
    bool busy;                        /* being read: see records_enter */
} Records;

extern PyTypeObject Records_Type;
int walk_prepare(void);

/* 1: *sight is the next record; 0: there is none, or it paused; -1: a Python error is set.
   What these call returns -1 without an error for PAUSED_FOR_BODY. */
int walk_next(Records *self, ParsedRecord *parsed);
void walk_unread(Records *self, const ParsedRecord *parsed);
int walk_skip_corrupt(Records *self);
void walk_release(Records *self);

/* For these and inflate.c among each other. -1 is an error, mostly CorruptRecords. */
int walk_corrupt(Records *self, int64_t resume, const char *reason, ...);
int walk_corrupt_because(Records *self, int64_t resume, PyObject *reason);
int64_t walk_entry_after(const Records *self);
void walk_pass_over(Records *self);
int walk_bad_record(Records *self, Reason reason);
int batch_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
int legacy_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
Reason legacy_record(Records *self, ParsedRecord *parsed);
const uint8_t *legacy_after(const Records *self, const uint8_t *at);

/* --- inflate.c ------------------------------------------------------------------------------ */

int inflate_prepare(void);
int inflate_body(Records *self, const Packed *packed);
int inflate_again(Records *self);
bool inflate_evict(Records *self);
void inflate_let_go(Records *self);
int inflate_lend(Records *self);

/* --- records.c ------------------------------------------------------------------------------ */

int records_prepare(PyObject *module);

/* Around everything that reads the bytes. -1 with an exception: somebody else reads them.

   Objects made on the way may start the garbage collector (up to Python 3.11 inside any allocation), and
   errors and codecs run Python. Finalizers and other threads could close the Records meanwhile, and the
   bytes would be gone. They are refused instead. */
int records_enter(Records *self);
static inline void records_leave(Records *self) { self->busy = false; }

/* Whether a thread prepares the next body. It is a pause, unless they are closed after that. */
bool records_await_body(Records *self);

/* The next Record as an object; NULL without an exception at the end, or at a pause. Steals nothing. */
PyObject *records_next(Records *self);

/* Sights the next record for callers that make an object of it, and may put it back. Until records_settle, nobody else
   reads or evicts these Records, and close() is delayed. False: there is nothing to settle, and maybe an exception. */
bool records_take(Records *self, ParsedRecord *parsed);
void records_settle(Records *self, const ParsedRecord *put_back);

/* --- stream.c, loop.c, columns.c, answer.c, ends.c, encoder.c, call.c, block.c, run.c ------------------------------ */

int stream_prepare(PyObject *module);
int loop_prepare(PyObject *module);
PyObject *records_take_columns(Records *self, PyObject *args);
int answer_prepare(PyObject *module);
PyObject *fetch_answer(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *record_set_end(PyObject *module, PyObject *args);
int encoder_prepare(PyObject *module);
int call_prepare(PyObject *module);
int block_prepare(PyObject *module);
int run_prepare(PyObject *module);
PyObject *murmur2(PyObject *module, PyObject *data);

#endif
