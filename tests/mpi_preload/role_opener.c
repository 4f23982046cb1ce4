/* Opens the module argv[2] and lets it work: with `local`, only the module sees its MPI, otherwise it is `global`. This
   program is linked with no MPI. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int Work(void);

int main(int argc, char** argv) {
  if (argc < 3) {
    return 9;
  }
  void* module = dlopen(argv[2], RTLD_NOW | (strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
  if (module == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 9;
  }
  Work* work = NULL;
  *(void**)&work = dlsym(module, "role_work");
  return work == NULL ? 9 : work();
}
