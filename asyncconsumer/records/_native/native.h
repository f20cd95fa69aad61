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

/* A compressed body of a record batch or of a wrapper message. */
typedef struct {
    const uint8_t *data;              /* NULL: the current entry has no compressed body */
    int64_t length;
    int codec;
    int64_t max_size;                 /* limit for the decompressed size */
    int64_t resume_offset;            /* offset after the body, at which reading continues if the body is corrupt */
    int64_t size;                     /* decompressed size */
} CompressedBody;

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs;
    PyObject *topic, *partition;      /* shared by every record */
    Py_buffer view;                   /* view.obj is NULL after the buffer was released */
    Py_ssize_t size;
    const uint8_t *next_entry, *end;  /* the entries (batches or messages) that are not open yet */
    int64_t next_offset;              /* records below it are skipped */
    int64_t end_offset;               /* iteration ends before the first record at or above it */
    int64_t returned_offset;          /* the offset of the last record that was returned */

    /* the current batch */
    const uint8_t *next_record, *body_end; /* the records that are not parsed yet */
    int64_t remaining;                /* number of these records */
    int64_t base_offset, last_offset; /* in a wrapper message, relative offsets are added to base_offset */
    int64_t error_offset;             /* the offset that an error of this batch names */
    int64_t base_timestamp;           /* with append_time: the timestamp of every record */
    int8_t magic, timestamp_type;
    bool append_time, is_decompressed;

    /* limits that the caller sets */
    int64_t max_decompressed_bytes, max_batch;
    bool check_crc;

    /* read_committed */
    PyObject *aborted;                /* sorted list of (first offset, producer id), or NULL */
    Py_ssize_t aborted_index;
    PyObject *aborted_producers;      /* set of the producers whose current transaction was aborted */

    /* the decompressed body of the current batch */
    PyObject *bodies;                 /* the cache that charges decompressed bodies to a budget, or NULL */
    bool is_charged;                  /* `bodies` has charged the body of this object */
    CompressedBody compressed;
    PyObject *body_slab;              /* Slab with the decompressed body or a part of it, or NULL */
    const uint8_t *body_start;        /* start of the part that is in memory */
    int64_t body_start_position;      /* position of body_start in the whole body */
    bool rest_evicted;                /* records that are not parsed yet are not in memory */
    int64_t resume_position;          /* position in the whole body at which these records begin */
    int64_t trailing_bytes;           /* evicted bytes after the last record */

    int64_t worked;                   /* bytes decompressed since the event loop last ran */
    bool cooperative;                 /* pause where the event loop should run */
    uint8_t paused;                   /* an enum Pause: the reason of the last pause */
    bool preparing;                   /* prepare() is running, possibly in another thread */
    bool pinned;                      /* between records_begin_read() and records_end_read() */
    bool closing;                     /* close() was called while `preparing` or `pinned` */
    PyObject *shared_bodies;          /* list of the bodies that Arrow views refer to, or NULL */
    PyObject *shared_body;            /* the current body if it is in such a list, or NULL */
    int64_t decompressed_bytes;       /* of all bodies since take_columns() began */
    PyObject *error;                  /* the CorruptRecords that stopped the iteration, or NULL */
    int64_t incomplete;
    int32_t leader_epoch;
    bool busy;                        /* a function is reading: see records_enter() */
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
int walk_corrupt_text(Records *self, int64_t resume, PyObject *reason);
int64_t walk_following_offset(const Records *self);
void walk_skip_batch(Records *self);
int walk_corrupt_record(Records *self, Reason reason);
int batch_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
int legacy_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
Reason legacy_parse_record(Records *self, ParsedRecord *parsed);
const uint8_t *legacy_message_after(const Records *self, const uint8_t *at);

/* --- inflate.c ------------------------------------------------------------------------------ */

int body_prepare(void);
int body_decompress(Records *self, const CompressedBody *compressed);
int body_decompress_again(Records *self);
bool body_evict(Records *self);
void body_drop(Records *self);
int body_share(Records *self);

/* --- records.c ------------------------------------------------------------------------------ */

int records_prepare(PyObject *module);

/* Around everything that reads the bytes. -1 with an exception: somebody else reads them.

   Objects made on the way may start the garbage collector (up to Python 3.11 inside any allocation), and
   errors and codecs run Python. Finalizers and other threads could close the Records meanwhile, and the
   bytes would be gone. They are refused instead. */
int records_enter(Records *self);
static inline void records_leave(Records *self) { self->busy = false; }

/* Whether a thread prepares the next body. It is a pause, unless they are closed after that. */
bool records_pause_while_preparing(Records *self);

/* The next Record as an object; NULL without an exception at the end, or at a pause. Steals nothing. */
PyObject *records_next(Records *self);

/* Sights the next record for callers that make an object of it, and may put it back. Until records_settle, nobody else
   reads or evicts these Records, and close() is delayed. False: there is nothing to settle, and maybe an exception. */
bool records_begin_read(Records *self, ParsedRecord *parsed);
void records_end_read(Records *self, const ParsedRecord *put_back);

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
