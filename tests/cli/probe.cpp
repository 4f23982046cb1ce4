// cli_probe [REPORT [STATUS]]: a rank of a job that prints the environment it got, whether the marker is loaded, and
// its rank. Rank 0 writes the file REPORT to the place that GRADWIRE_REPORT names. It ends with STATUS.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

extern char** environ;

int main(int argc, char** argv) {
  const char* open_mpi = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* mpich = std::getenv("PMI_RANK");
  const std::string rank = open_mpi != nullptr ? open_mpi : (mpich != nullptr ? mpich : "none");
#ifdef GRADWIRE_STATIC_PROBE
  const bool marked = false;
#else
  const bool marked = ::dlsym(RTLD_DEFAULT, "gradwire_test_marker") != nullptr;
#endif
  std::string text = "rank " + rank + " marked " + (marked ? "yes" : "no");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (const char* name : {"GRADWIRE_", "LD_PRELOAD=", "HOME=", "USERS_OWN="}) {
      if (std::strncmp(*entry, name, std::strlen(name)) == 0) {
        text += std::string(" [") + *entry + "]";
      }
    }
  }
  std::puts(text.c_str());
  const char* report = std::getenv("GRADWIRE_REPORT");
  if (argc > 1 && *argv[1] != '\0' && rank == "0" && report != nullptr) {
    std::ofstream(report) << std::ifstream(argv[1]).rdbuf();
  }
  return argc > 2 ? std::atoi(argv[2]) : 0;
}
