/* The declarations that the modules of the compiled decoder share. */

#ifndef ASYNCCONSUMER_NATIVE_H
#define ASYNCCONSUMER_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "reader.h"

/* --- record.c: the class of records -------------------------------------------- */

typedef struct {
    PyObject_HEAD
    /* Python reads members faster than properties. */
    PyObject *topic, *partition, *offset, *timestamp, *key, *value, *headers;
    signed char timestamp_type;
} Record;

extern PyTypeObject Record_Type;
int record_prepare(PyObject *module);

/* The fields of a record as positions in a buffer, before any object is created. */
typedef struct {
    int64_t offset, timestamp;
    int8_t timestamp_type;
    const uint8_t *key, *value; /* NULL: null */
    int32_t key_length, value_length;
    const uint8_t *headers, *headers_end;
    int32_t header_count;
    const uint8_t *start;       /* start of the record, for walk_unread() */
    int64_t next_offset_before;
} ParsedRecord;

PyObject *record_create(PyObject *topic, PyObject *partition, const ParsedRecord *parsed);

/* Returns the headers of a record as a tuple. All records without headers share one tuple. */
PyObject *headers_create(const ParsedRecord *parsed);

/* Creates a Record from objects, which other records may share. */
PyObject *record_create_from_parts(PyObject *topic, PyObject *partition, PyObject *offset, PyObject *timestamp,
                                   signed char timestamp_type, PyObject *key, PyObject *value, PyObject *headers);

enum { WORK_BETWEEN_PAUSES = 4 << 20 }; /* bytes decompressed before the event loop runs again */

/* The values of asyncconsumer.records.pauses.Pause. More records follow after the event loop ran, or after
   prepare(). */
enum Pause { NOT_PAUSED, PAUSED_FOR_LOOP, PAUSED_FOR_BODY };

/* --- walk.c, batch.c, legacy.c: from batch to batch, from record to record -------------------------- */

/* A compressed body of a record batch or of a wrapper message. */
typedef struct {
    const uint8_t *data;   /* NULL: the current entry has no compressed body */
    int64_t length;
    int codec;
    int64_t max_size;      /* limit for the decompressed size */
    int64_t resume_offset; /* offset after the body, at which reading continues if the body is corrupt */
    int64_t size;          /* decompressed size */
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

/* Returns 1 if *parsed is the next record, 0 at the end or at a pause, and -1 with an exception. The functions that
   it calls return -1 without an exception for PAUSED_FOR_BODY. */
int walk_next(Records *self, ParsedRecord *parsed);
void walk_unread(Records *self, const ParsedRecord *parsed);
int walk_skip_corrupt(Records *self);
void walk_release(Records *self);

/* Used by walk.c, batch.c, legacy.c and body.c. These functions return -1 with an exception, mostly CorruptRecords. */
int walk_corrupt(Records *self, int64_t resume, const char *reason, ...);
int walk_corrupt_text(Records *self, int64_t resume, PyObject *reason);
int64_t walk_following_offset(const Records *self);
void walk_skip_batch(Records *self);
int walk_corrupt_record(Records *self, Reason reason);
int batch_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
int legacy_open(Records *self, const uint8_t *entry, const uint8_t *entry_end);
Reason legacy_parse_record(Records *self, ParsedRecord *parsed);
const uint8_t *legacy_message_after(const Records *self, const uint8_t *position);

/* --- body.c ------------------------------------------------------------------------------ */

int body_prepare(void);
int body_decompress(Records *self, const CompressedBody *compressed);
int body_decompress_again(Records *self);
bool body_evict(Records *self);
void body_drop(Records *self);
int body_share(Records *self);

/* --- records.c ------------------------------------------------------------------------------ */

int records_prepare(PyObject *module);

/* Every function that reads the bytes calls this first. It returns -1 with an exception if another function is reading.

   Creating objects may start the garbage collector (up to Python 3.11 in any allocation), and errors and codecs run
   Python code. Finalizers and other threads could close the Records meanwhile, which would free the bytes. So they
   are refused. */
int records_enter(Records *self);
static inline void records_leave(Records *self) { self->busy = false; }

/* Whether prepare() is running in another thread, so that the caller has to wait for it. Sets `paused`. */
bool records_pause_while_preparing(Records *self);

/* Returns the next Record. Returns NULL without an exception at the end or at a pause. */
PyObject *records_next(Records *self);

/* Parses the next record for a caller that creates an object from it, and that may put it back. Until
   records_end_read(), the Records cannot be read or evicted, and close() is delayed. If the result is false,
   records_end_read() must not be called, and an exception may be set. */
bool records_begin_read(Records *self, ParsedRecord *parsed);
void records_end_read(Records *self, const ParsedRecord *put_back);

/* --- the other modules ------------------------------------------------------------------------- */

int stream_prepare(PyObject *module);
int loop_prepare(PyObject *module);
PyObject *records_take_columns(Records *self, PyObject *args);
int fetch_response_prepare(PyObject *module);
PyObject *fetch_answer(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *record_set_end(PyObject *module, PyObject *args);
int encoder_prepare(PyObject *module);
int call_prepare(PyObject *module);
int block_prepare(PyObject *module);
int run_prepare(PyObject *module);
PyObject *murmur2(PyObject *module, PyObject *data);

#endif
