/* SIMULATED NVML: reads the file that nvml_file.h describes. */
#include "nvml_file.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_LINES 4096
#define MAX_TEXT 160
#define BUCKETS 8192 /* a power of two above MAX_LINES */

struct line {
    char key[MAX_TEXT];
    char value[MAX_TEXT];
};

static struct line lines[MAX_LINES];
static int line_count;
/* Line number + 1 by hash of the key: lookups must cost little beside the latencies that are played back. */
static short buckets[BUCKETS];
static struct stat last_seen;

static const struct {
    const char *name;
    int code;
    const char *text;
} errors[] = {
    {"SUCCESS", 0, "Success"},
    {"UNINITIALIZED", 1, "Uninitialized"},
    {"INVALID_ARGUMENT", 2, "Invalid Argument"},
    {"NOT_SUPPORTED", 3, "Not Supported"},
    {"NO_PERMISSION", 4, "Insufficient Permissions"},
    {"NOT_FOUND", 6, "Not Found"},
    {"INSUFFICIENT_SIZE", 7, "Insufficient Size"},
    {"DRIVER_NOT_LOADED", 9, "Driver Not Loaded"},
    {"TIMEOUT", 10, "Timeout"},
    {"FUNCTION_NOT_FOUND", 13, "Function Not Found"},
    {"GPU_IS_LOST", 15, "GPU is lost"},
    {"RESET_REQUIRED", 16, "GPU requires restart"},
    {"LIB_RM_VERSION_MISMATCH", 18, "RM has detected an NVML/RM version mismatch."},
    {"ARGUMENT_VERSION_MISMATCH", 25, "Argument version mismatch"},
    {"NOT_READY", 27, "Not Ready"},
    {"UNKNOWN", 999, "Unknown Error"},
};
#define ERROR_COUNT (int)(sizeof errors / sizeof errors[0])

const char *error_text(int code)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "Unknown Error";
}

static int error_code(const char *name)
{
    for (int i = 0; i < ERROR_COUNT; i++)
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].code;
    return -1;
}

static void die(const char *why, const char *what)
{
    fprintf(stderr, "simulated NVML: %s: %s\n", why, what);
    _exit(70);
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

static unsigned first_bucket(const char *key)
{
    unsigned hash = 2166136261u; /* FNV-1a */
    while (*key)
        hash = (hash ^ (unsigned char)*key++) * 16777619u;
    return hash % BUCKETS;
}

/* The bucket that holds the key, or the empty one where it belongs. */
static short *bucket_of(const char *key)
{
    unsigned bucket = first_bucket(key);
    while (buckets[bucket] && strcmp(lines[buckets[bucket] - 1].key, key) != 0)
        bucket = (bucket + 1) % BUCKETS;
    return &buckets[bucket];
}

static void add_line(const char *key, const char *value)
{
    short *bucket = bucket_of(key);
    if (*bucket)
        die("given twice", key);
    snprintf(lines[line_count].key, MAX_TEXT, "%s", key);
    snprintf(lines[line_count].value, MAX_TEXT, "%s", value);
    *bucket = (short)++line_count;
}

static void load(const char *path)
{
    char text[2 * MAX_TEXT + 8];
    FILE *file = fopen(path, "re");
    if (!file)
        die(strerror(errno), path);
    line_count = 0;
    memset(buckets, 0, sizeof buckets);
    while (fgets(text, sizeof text, file)) {
        char *key = trimmed(text);
        if (*key == '\0' || *key == '#')
            continue;
        char *equals = strchr(key, '=');
        if (!equals || line_count == MAX_LINES)
            die("not `key = value`, or too many lines", key);
        *equals = '\0';
        add_line(trimmed(key), trimmed(equals + 1));
    }
    fclose(file);
}

static void refresh(void)
{
    struct stat now;
    const char *path = getenv("NODEGATE_TEST_NVML");
    if (!path)
        die("set NODEGATE_TEST_NVML to a file of values", "it is not set");
    if (stat(path, &now) != 0)
        die(strerror(errno), path);
    if (now.st_ino == last_seen.st_ino && now.st_size == last_seen.st_size &&
        now.st_mtim.tv_sec == last_seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == last_seen.st_mtim.tv_nsec)
        return;
    load(path);
    last_seen = now;
}

static const char *lookup(const char *key)
{
    short found = *bucket_of(key);
    return found ? lines[found - 1].value : NULL;
}

const char *find_text(int gpu, const char *key)
{
    char full[MAX_TEXT];
    if (gpu == NODE)
        return lookup(key);
    snprintf(full, sizeof full, "gpu%d.%s", gpu, key);
    const char *value = lookup(full);
    if (value)
        return value;
    snprintf(full, sizeof full, "gpu.%s", key);
    return lookup(full);
}

int find_number(int gpu, const char *key, long long *out)
{
    char *end;
    const char *value = find_text(gpu, key);
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    int code = error_code(value);
    if (code >= 0)
        return code;
    *out = strtoll(value, &end, 0);
    if (end == value || *end != '\0')
        die("neither a number nor an NVML error", value);
    return NVML_SUCCESS;
}

int copy_text(int gpu, const char *key, char *out, unsigned size)
{
    const char *value = find_text(gpu, key);
    if (!value)
        return NVML_ERROR_NOT_SUPPORTED;
    int code = error_code(value);
    if (code >= 0)
        return code;
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value);
    return NVML_SUCCESS;
}

static void wait_us(long long us)
{
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += us % 1000000 * 1000;
    end.tv_sec += us / 1000000 + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    /* A sleep is some 60 us late, so short waits spin. */
    if (us > 500)
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
            ;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static int act_out(const char *fault)
{
    int code = error_code(fault);
    if (code >= 0)
        return code;
    if (strcmp(fault, "none") == 0)
        return NVML_SUCCESS;
    if (strcmp(fault, "abort") == 0)
        abort();
    if (strcmp(fault, "segv") == 0)
        raise(SIGSEGV);
    if (strcmp(fault, "noise") == 0)
        return write(STDOUT_FILENO, "noise from the library\n", 23) < 0 ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
    if (strcmp(fault, "hang") != 0)
        die("no such fault", fault);
    for (;;)
        pause();
}

/* `gpuN.key`, else `gpu.key`, else `key`. */
static const char *find_setting(int gpu, const char *key)
{
    const char *text = gpu == NODE ? NULL : find_text(gpu, key);
    return text ? text : find_text(NODE, key);
}

void wait_field(int gpu, unsigned field)
{
    char key[MAX_TEXT];
    snprintf(key, sizeof key, "us.field.%u", field);
    const char *text = find_setting(gpu, key);
    if (text)
        wait_us(atoll(text));
}

int begin_peer(const char *name, int gpu)
{
    char key[MAX_TEXT];
    snprintf(key, sizeof key, "fault.%s", name);
    const char *text = find_text(gpu, key);
    if (!text)
        text = find_text(gpu, "fault");
    return text ? act_out(text) : NVML_SUCCESS;
}

int begin_call(const char *name, int gpu)
{
    char key[MAX_TEXT];
    const char *text;
    refresh();
    snprintf(key, sizeof key, "us.%s", name);
    text = find_setting(gpu, key);
    if (text)
        wait_us(atoll(text));
    snprintf(key, sizeof key, "fault.%s", name);
    text = gpu == NODE ? NULL : find_text(gpu, key);
    if (!text && gpu != NODE)
        text = find_text(gpu, "fault");
    if (!text)
        text = find_text(NODE, key);
    return text ? act_out(text) : NVML_SUCCESS;
}
