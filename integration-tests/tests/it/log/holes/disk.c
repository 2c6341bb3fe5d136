/* A disk that takes 20 ms for each flush. While the file DISK_IS_FROZEN exists, a flush makes the file
   DISK_IS_AWAITED, and waits. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_the_disk(void) {
    usleep(20000);
    while (access(getenv("DISK_IS_FROZEN"), F_OK) == 0) {
        close(open(getenv("DISK_IS_AWAITED"), O_CREAT | O_WRONLY, 0666));
        usleep(1000);
    }
}

int fdatasync(int fd) {
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, fd);
}
