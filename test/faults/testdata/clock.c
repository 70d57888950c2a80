// A library for LD_PRELOAD. It adds a number of seconds to the clock of its process. A test writes
// this number into the file of eight bytes that is named by the process id, in the folder
// LEADERBOARD_TEST_CLOCKS. Monotonic clocks do not change, as after a step of a real clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t no_shift = 0;
static const volatile int64_t *shift = &no_shift;
static int (*real)(clockid_t, struct timespec *);

static void resolve(void) {
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

__attribute__((constructor)) static void map_shift(void) {
	resolve();
	const char *folder = getenv("LEADERBOARD_TEST_CLOCKS");
	char path[4096];
	if (!folder || snprintf(path, sizeof path, "%s/%d", folder, getpid()) >= (int)sizeof path)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *shift) < 0)
		return;
	void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED)
		shift = page;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	resolve();
	int err = real(id, t);
	if (!err && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t->tv_sec += *shift;
	return err;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	(void)zone; // obsolete, see gettimeofday(2)
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME_COARSE, &now))
		return -1;
	if (t)
		*t = now.tv_sec;
	return now.tv_sec;
}
