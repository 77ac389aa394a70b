/*
 * A libnvidia-ml for tests. Two cards; how they behave is read from the file named by FAKE_NVML at every call, one
 * word a line: hang, hang-init, no-driver, n-a, error, lost, vanish, wrong-total, v1-only, no-processes, wddm, mig,
 * many, crash. Its figures are fixed, so that a test can name them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define GPU_IS_LOST 15
#define UNKNOWN 999
#define NOT_AVAILABLE 0xffffffffffffffffULL
#define MIB (1024ULL * 1024ULL)

typedef unsigned long long u64;
typedef struct { int index; const char *uuid; const char *name; u64 total; u64 used; } card;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; u64 used; unsigned instance, compute_instance; } process;

static card cards[] = {
  {0, "GPU-11111111-2222-3333-4444-555555555555", "Fake H200", 143771ULL * MIB, 1000ULL * MIB},
  {1, "GPU-AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE", "Fake desk card", 16384ULL * MIB, 700ULL * MIB},
};
static card slice = {2, "MIG-99999999-8888-7777-6666-555555555555", "Fake slice", 20096ULL * MIB, 64ULL * MIB};

static int told(const char *word) {
  char line[64];
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  int found = 0;
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (!strcmp(line, word)) found = 1;
  }
  fclose(file);
  return found;
}

static void maybe_hang(void) {
  while (told("hang")) usleep(20000);
  if (told("crash")) abort();
}

int nvmlInit_v2(void) {
  while (told("hang-init")) usleep(20000);
  return told("no-driver") ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "580.159.03"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { maybe_hang(); *count = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, card **handle) {
  if (index > 1) return INVALID_ARGUMENT;
  if (index == 1 && told("vanish")) return GPU_IS_LOST;
  *handle = &cards[index];
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, card **handle) {
  for (int index = 0; index < 2; index++) {
    if (strcasecmp(uuid, cards[index].uuid)) continue;
    if (index == 1 && told("vanish")) return NOT_FOUND;
    *handle = &cards[index];
    return SUCCESS;
  }
  if (!strcasecmp(uuid, slice.uuid)) { *handle = &slice; return SUCCESS; }
  return NOT_FOUND;
}

int nvmlDeviceGetUUID(card *handle, char *text, unsigned length) { snprintf(text, length, "%s", handle->uuid); return SUCCESS; }
int nvmlDeviceGetName(card *handle, char *text, unsigned length) { snprintf(text, length, "%s", handle->name); return SUCCESS; }
int nvmlDeviceGetDisplayActive(card *handle, unsigned *active) { *active = handle->index == 1; return SUCCESS; }
/* As drivers do on cards without any connector. */
int nvmlDeviceGetDisplayMode(card *handle, unsigned *mode) { (void)handle; *mode = 1; return SUCCESS; }

int nvmlDeviceGetMigMode(card *handle, unsigned *current, unsigned *pending) {
  if (handle->index != 0) return NOT_SUPPORTED;
  *current = *pending = told("mig");
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(card *handle, unsigned *count) { (void)handle; *count = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(card *handle, unsigned index, card **found) {
  (void)handle;
  if (index != 0) return NOT_FOUND;
  *found = &slice;
  return SUCCESS;
}

static int fault(card *handle) {
  maybe_hang();
  if (told("n-a")) return NOT_SUPPORTED;
  if (told("error")) return UNKNOWN;
  if (handle->index == 1 && (told("lost") || told("vanish"))) return GPU_IS_LOST;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(card *handle, memory_v1 *memory) {
  int code = fault(handle);
  if (code) return code;
  memory->total = handle->total;
  memory->used = handle->used + 615ULL * MIB;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(card *handle, memory_v2 *memory) {
  if (told("v1-only")) return NOT_SUPPORTED;
  if (memory->version != (sizeof(memory_v2) | (2 << 24))) return INVALID_ARGUMENT;
  int code = fault(handle);
  if (code) return code;
  memory->total = handle->total;
  memory->reserved = 615ULL * MIB;
  memory->used = told("wrong-total") ? handle->total + 1 : handle->used;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

static int list(const process *all, unsigned length, unsigned *count, process *infos) {
  unsigned room = *count;
  *count = length;
  if (room < length) return INSUFFICIENT_SIZE;
  memcpy(infos, all, length * sizeof *all);
  return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(card *handle, unsigned *count, process *infos) {
  static process many[300];
  process three[] = {{4001, 500 * MIB, 0, 0}, {4002, 200 * MIB, 0, 0}, {4003, told("wddm") ? NOT_AVAILABLE : 0, 0, 0}};
  (void)handle;
  if (told("no-processes")) return NOT_SUPPORTED;
  for (unsigned index = 0; index < 300; index++) many[index] = (process){5000 + index, MIB, 0, 0};
  return told("many") ? list(many, 300, count, infos) : list(three, 3, count, infos);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(card *handle, unsigned *count, process *infos) {
  /* 4002 stands in both lists, each time with its whole use. */
  process two[] = {{4002, 200 * MIB, 0, 0}, {4009, 30 * MIB, 0, 0}};
  return list(two, handle->index == 1 ? 2 : 0, count, infos);
}
