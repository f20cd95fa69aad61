/* The parser of fetch responses. It does not decode the records.

   The parser stores the first error with its position. All later reads return zero and do not move. So only loops
   have to check for errors. */

#include "native.h"

enum {
    FIRST_VERSION = 4,
    LAST_VERSION = 17,
    WITH_LOG_START = 5,
    WITH_SESSION = 7,
    WITH_PREFERRED_REPLICA = 11,
    FLEXIBLE = 12,
    WITH_TOPIC_ID = 13,
    /* Smallest sizes of array elements, so that a false count cannot allocate much memory. */
    MIN_TOPIC_SIZE = 3,
    MIN_PARTITION_SIZE = 22,
    MIN_ABORTED_SIZE = 16,
    MIN_ENDPOINT_SIZE = 11,
    MIN_TAG_SIZE = 2,
    /* Limit for bytes that are not records, because every few of them become an object. A part of the frame size is
       added: the list of aborted transactions grows with the records. */
    MAX_OTHER_BYTES = 4 << 20,
    OTHER_BYTES_PART = 16,
};

static PyObject *malformed_response;
static PyTypeObject *FetchAnswer_Type, *PartitionAnswer_Type;

typedef struct {
    const uint8_t *start;
    Reader reader;
    int version;
    int64_t record_bytes;    /* size of the record sets so far */
    int64_t max_other_bytes; /* limit for the other bytes */
    Reason error;            /* NULL: no error so far */
    const uint8_t *error_position;
} ResponseParser;

typedef struct {
    int64_t start, end; /* both 0: the field is missing */
} FieldRange;

static void set_error(ResponseParser *parser, Reason reason, const uint8_t *position)
{
    if (parser->error == NULL) {
        parser->error = reason;
        parser->error_position = position;
    }
    parser->reader.end = parser->reader.position; /* no further bytes are read */
}

/* Sets an error if the bytes outside of the record sets, with `more` bytes that follow, exceed the limit. */
static void check_other_bytes(ResponseParser *parser, int64_t more)
{
    if (parser->error == NULL
        && parser->reader.position - parser->start - parser->record_bytes + more > parser->max_other_bytes)
        set_error(parser, "too many bytes outside of its record sets", parser->reader.position);
}

/* --- fields ---------------------------------------------------------------------------------------- */

static const uint8_t *parse_bytes(ResponseParser *parser, int64_t length)
{
    static const uint8_t zeros[16];
    const uint8_t *start = parser->reader.position;
    if (parser->error != NULL || bytes_left(&parser->reader) < length) {
        set_error(parser, REASON_CUT_OFF, start);
        return zeros;
    }
    parser->reader.position += length;
    return start;
}

static int16_t parse_int16(ResponseParser *parser) { return int16_at(parse_bytes(parser, 2)); }
static int32_t parse_int32(ResponseParser *parser) { return int32_at(parse_bytes(parser, 4)); }
static int64_t parse_int64(ResponseParser *parser) { return int64_at(parse_bytes(parser, 8)); }

static int64_t parse_varint(ResponseParser *parser)
{
    const uint8_t *start = parser->reader.position;
    uint64_t value = 0;
    Reason reason = parser->error ? parser->error : read_unsigned_varint(&parser->reader, 32, &value);
    if (reason == NULL)
        return (int64_t)value;
    set_error(parser, reason, start);
    return 0;
}

/* Reads the length of an array or string with elements of `min_size` bytes or more. -1 means null. With
   `has_short_length`, versions before FLEXIBLE have an int16. */
static int64_t parse_length(ResponseParser *parser, int64_t min_size, bool has_short_length)
{
    const uint8_t *start = parser->reader.position;
    int64_t length = parser->version >= FLEXIBLE ? parse_varint(parser) - 1
                   : has_short_length            ? parse_int16(parser)
                                                 : parse_int32(parser);
    if (parser->error != NULL)
        return 0;
    if (length < -1)
        set_error(parser, "a negative length", start);
    else if (length > bytes_left(&parser->reader) / min_size)
        set_error(parser, "a length that goes beyond the end", start);
    else
        return length;
    return 0;
}

static int64_t parse_count(ResponseParser *parser, int64_t min_size)
{
    const uint8_t *start = parser->reader.position;
    int64_t count = parse_length(parser, min_size, false);
    if (count < 0)
        set_error(parser, "an array that is null", start);
    return count < 0 ? 0 : count;
}

/* Returns a new str, or None for null. NULL with an exception only without memory. */
static PyObject *parse_string(ResponseParser *parser)
{
    const uint8_t *start = parser->reader.position;
    int64_t length = parse_length(parser, 1, true);
    if (length < 0)
        Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)parse_bytes(parser, length), (Py_ssize_t)length, NULL);
    if (text != NULL || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return text;
    PyErr_Clear();
    set_error(parser, "a string that is not UTF-8", start);
    Py_RETURN_NONE;
}

/* --- tagged fields ------------------------------------------------------------------------------------ */

/* Sets the ranges of the tags below `tag_count`, and skips the other tags. */
static void parse_tags(ResponseParser *parser, FieldRange *ranges, int tag_count)
{
    for (int i = 0; i < tag_count; i++)
        ranges[i] = (FieldRange){0, 0};
    if (parser->version < FLEXIBLE || parser->error != NULL)
        return;
    const uint8_t *start = parser->reader.position;
    int64_t count = parse_varint(parser);
    if (count > bytes_left(&parser->reader) / MIN_TAG_SIZE)
        set_error(parser, "a length that goes beyond the end", start);
    for (; count > 0 && parser->error == NULL; count--) {
        int64_t tag = parse_varint(parser);
        start = parser->reader.position;
        int64_t size = parse_varint(parser);
        if (size > bytes_left(&parser->reader))
            set_error(parser, "a length that goes beyond the end", start);
        if (parser->error == NULL && tag < tag_count)
            ranges[tag] = (FieldRange){parser->reader.position - parser->start,
                                       parser->reader.position - parser->start + size};
        if (parser->error == NULL)
            parser->reader.position += size;
    }
}

/* Returns a parser for the content of a tagged field. It must end where the field ends. */
static ResponseParser parser_of_tag(const ResponseParser *parser, FieldRange tag)
{
    ResponseParser inner = *parser;
    inner.reader = (Reader){parser->start + tag.start, parser->start + tag.end};
    return inner;
}

static void end_tag(ResponseParser *parser, ResponseParser *inner, FieldRange tag)
{
    if (inner->error == NULL && inner->reader.position != parser->start + tag.end)
        set_error(inner, "a tagged field that is longer than its content", inner->reader.position);
    if (inner->error != NULL)
        set_error(parser, inner->error, inner->error_position);
}

static PyObject *parse_pair(ResponseParser *parser, FieldRange tag, bool has_int64)
{
    if (tag.end == 0)
        Py_RETURN_NONE;
    ResponseParser inner = parser_of_tag(parser, tag);
    long long first = parse_int32(&inner), second = has_int64 ? parse_int64(&inner) : parse_int32(&inner);
    parse_tags(&inner, NULL, 0);
    end_tag(parser, &inner, tag);
    return Py_BuildValue("(LL)", first, second);
}

static PyObject *parse_endpoint(ResponseParser *parser)
{
    int32_t node = parse_int32(parser);
    PyObject *host = parse_string(parser);
    int32_t port = parse_int32(parser);
    PyObject *rack = host ? parse_string(parser) : NULL, *endpoint = NULL;
    parse_tags(parser, NULL, 0);
    if (rack != NULL)
        endpoint = Py_BuildValue("(iOiO)", node, host, port, rack);
    Py_XDECREF(host);
    Py_XDECREF(rack);
    return endpoint;
}

static int append_stolen(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return -1;
    int status = PyList_Append(list, item);
    Py_DECREF(item);
    return status;
}

static PyObject *parse_endpoints(ResponseParser *parser, FieldRange tag)
{
    PyObject *endpoints = PyList_New(0);
    if (tag.end == 0 || endpoints == NULL)
        return endpoints;
    ResponseParser inner = parser_of_tag(parser, tag);
    for (int64_t count = parse_count(&inner, MIN_ENDPOINT_SIZE); count > 0 && inner.error == NULL; count--)
        if (append_stolen(endpoints, parse_endpoint(&inner)) < 0) {
            Py_DECREF(endpoints);
            return NULL;
        }
    end_tag(parser, &inner, tag);
    return endpoints;
}

/* --- the response ---------------------------------------------------------------------------------------- */

static PyObject *parse_aborted(ResponseParser *parser)
{
    int64_t count = parse_length(parser, MIN_ABORTED_SIZE, false);
    if (count < 0)
        Py_RETURN_NONE;
    check_other_bytes(parser, count * MIN_ABORTED_SIZE);
    PyObject *aborted = PyList_New(0);
    for (; aborted != NULL && count > 0 && parser->error == NULL; count--) {
        long long producer = parse_int64(parser), first = parse_int64(parser);
        parse_tags(parser, NULL, 0);
        if (append_stolen(aborted, Py_BuildValue("(LL)", producer, first)) < 0)
            Py_CLEAR(aborted);
    }
    return aborted;
}

/* Returns a new struct sequence. Steals the fields. If one of them is NULL, the result is NULL. */
static PyObject *new_sequence(PyTypeObject *type, PyObject **fields, int count)
{
    PyObject *sequence = PyStructSequence_New(type);
    bool is_complete = sequence != NULL;
    for (int i = 0; i < count; i++) {
        is_complete = is_complete && fields[i] != NULL;
        if (sequence != NULL)
            PyStructSequence_SetItem(sequence, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    }
    if (!is_complete)
        Py_CLEAR(sequence);
    return sequence;
}

static PyObject *parse_partition(ResponseParser *parser, PyObject *topic)
{
    int32_t partition = parse_int32(parser);
    int16_t error = parse_int16(parser);
    int64_t high = parse_int64(parser), stable = parse_int64(parser);
    int64_t first = parser->version >= WITH_LOG_START ? parse_int64(parser) : -1;
    PyObject *aborted = parse_aborted(parser);
    int32_t replica = parser->version >= WITH_PREFERRED_REPLICA ? parse_int32(parser) : -1;
    int64_t length = parse_length(parser, 1, false);
    int64_t start = parser->reader.position - parser->start;
    parse_bytes(parser, length < 0 ? 0 : length);
    int64_t end = parser->reader.position - parser->start;
    parser->record_bytes += end - start;
    FieldRange tags[2];
    parse_tags(parser, tags, 2);
    PyObject *leader = parse_pair(parser, tags[1], false), *diverging = parse_pair(parser, tags[0], true);
    PyObject *fields[] = {
        Py_NewRef(topic), PyLong_FromLong(partition), PyLong_FromLong(error), PyLong_FromLongLong(high),
        PyLong_FromLongLong(stable), PyLong_FromLongLong(first), aborted, PyLong_FromLong(replica),
        leader, diverging, PyLong_FromLongLong(start), PyLong_FromLongLong(end),
    };
    return new_sequence(PartitionAnswer_Type, fields, 12);
}

static PyObject *parse_topic(ResponseParser *parser)
{
    if (parser->version < WITH_TOPIC_ID)
        return parse_string(parser);
    return PyBytes_FromStringAndSize((const char *)parse_bytes(parser, 16), 16);
}

static int parse_partitions(ResponseParser *parser, PyObject *partitions)
{
    int64_t topics = parse_count(parser, MIN_TOPIC_SIZE);
    for (; topics > 0 && parser->error == NULL; topics--) {
        const uint8_t *start = parser->reader.position;
        PyObject *topic = parse_topic(parser);
        if (topic == NULL)
            return -1;
        if (topic == Py_None)
            set_error(parser, "a topic without a name", start);
        int64_t count = parse_count(parser, MIN_PARTITION_SIZE);
        int status = 0;
        for (; status == 0 && count > 0 && parser->error == NULL; count--) {
            status = append_stolen(partitions, parse_partition(parser, topic));
            check_other_bytes(parser, 0);
        }
        Py_DECREF(topic);
        if (status < 0)
            return -1;
        parse_tags(parser, NULL, 0);
    }
    return 0;
}

static PyObject *parse_response(ResponseParser *parser)
{
    PyObject *partitions = PyList_New(0);
    if (partitions == NULL)
        return NULL;
    int32_t throttle = parse_int32(parser);
    int16_t error = parser->version >= WITH_SESSION ? parse_int16(parser) : 0;
    int32_t session = parser->version >= WITH_SESSION ? parse_int32(parser) : 0;
    if (parse_partitions(parser, partitions) < 0) {
        Py_DECREF(partitions);
        return NULL;
    }
    FieldRange tags[1];
    parse_tags(parser, tags, 1);
    if (parser->error == NULL && bytes_left(&parser->reader) > 0)
        set_error(parser, "bytes after its end", parser->reader.position);
    check_other_bytes(parser, 0);
    PyObject *fields[] = {
        PyLong_FromLong(throttle), PyLong_FromLong(error), PyLong_FromLong(session), partitions,
        parse_endpoints(parser, tags[0]),
    };
    return new_sequence(FetchAnswer_Type, fields, 5);
}

PyObject *fetch_answer(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"frame", "version", NULL};
    Py_buffer view;
    int version;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*i:fetch_answer", names, &view, &version))
        return NULL;
    if (version < FIRST_VERSION || version > LAST_VERSION) {
        PyErr_Format(PyExc_ValueError, "fetch version %d is not one of %d to %d", version, FIRST_VERSION,
                     LAST_VERSION);
        PyBuffer_Release(&view);
        return NULL;
    }
    const uint8_t *start = view.buf;
    ResponseParser parser = {start, {start, start + view.len}, version, 0,
                             MAX_OTHER_BYTES + view.len / OTHER_BYTES_PART, NULL, NULL};
    PyObject *answer = parse_response(&parser);
    if (answer != NULL && parser.error != NULL) {
        Py_CLEAR(answer);
        PyObject *error = PyObject_CallFunction(malformed_response, "sins", "Fetch", version,
                                                (Py_ssize_t)(parser.error_position - start), parser.error);
        if (error != NULL)
            PyErr_SetObject(malformed_response, error);
        Py_XDECREF(error);
    }
    PyBuffer_Release(&view);
    return answer;
}

/* --- the types ---------------------------------------------------------------------------------------------- */

static PyStructSequence_Field partition_fields[] = {
    {"topic", "Topic name; from version 13 on the 16 bytes of the topic id."},
    {"partition", NULL},
    {"error_code", NULL},
    {"high_watermark", NULL},
    {"last_stable_offset", NULL},
    {"log_start_offset", NULL},
    {"aborted", "Pairs of producer id and first offset, or None."},
    {"preferred_read_replica", NULL},
    {"current_leader", "Node id and epoch of the leader, or None."},
    {"diverging_epoch", "Leader epoch and its end offset, or None."},
    {"start", "Start of the record set in the frame."},
    {"end", "End of the record set in the frame."},
    {NULL, NULL},
};

static PyStructSequence_Field answer_fields[] = {
    {"throttle_ms", NULL},
    {"error_code", NULL},
    {"session_id", NULL},
    {"partitions", "A list of PartitionAnswer."},
    {"node_endpoints", "Node id, host, port and rack of the current leaders in this response."},
    {NULL, NULL},
};

static PyStructSequence_Desc partition_description = {
    "asyncconsumer.records._records.PartitionAnswer", "The part of a fetch response for one partition.",
    partition_fields, 12,
};

static PyStructSequence_Desc answer_description = {
    "asyncconsumer.records._records.FetchAnswer",
    "A parsed fetch response without the records, which stay in the frame.",
    answer_fields, 5,
};

int fetch_response_prepare(PyObject *module)
{
    PyObject *errors = PyImport_ImportModule("asyncconsumer.errors");
    malformed_response = errors ? PyObject_GetAttrString(errors, "MalformedResponse") : NULL;
    Py_XDECREF(errors);
    FetchAnswer_Type = PyStructSequence_NewType(&answer_description);
    PartitionAnswer_Type = PyStructSequence_NewType(&partition_description);
    if (malformed_response == NULL || FetchAnswer_Type == NULL || PartitionAnswer_Type == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "PartitionAnswer", (PyObject *)PartitionAnswer_Type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "FetchAnswer", (PyObject *)FetchAnswer_Type);
}
