// Loaded before every program under the sanitizers (launch/check/build.sh): no plugin of Open MPI's is unloaded, and an
// error of undefined behaviour leaves a file, as one of the address sanitizer does by its log_path.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int dlclose(void* library) { return library == 0; }

void __ubsan_on_report(void) {
  char name[4096], program[4096];
  const char* folder = getenv("MOELOOM_CHECK_REPORTS");
  if (folder == NULL || snprintf(name, sizeof name, "%s/undefined.%d", folder, (int)getpid()) >= (int)sizeof name) return;
  const int file = open(name, O_CREAT | O_WRONLY | O_APPEND, 0644);
  if (file < 0) return;
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  dprintf(file, "undefined behaviour in %.*s: what it is, the program wrote to stderr\n", length < 0 ? 0 : (int)length,
          program);
  close(file);
}
