#include "plugins/mpi_preload/next.hpp"

#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "base/environment.hpp"
#include "base/loaded_objects.hpp"

namespace gradwire::mpi_preload {
namespace {

using AnyNext = void*(const char*);

std::string object_of(const void* function) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Whether this process is rank 0 of its job, or its rank is not known: MPI cannot be asked after its end.
bool may_speak() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) {  // NOLINT(concurrency-mt-unsafe): read only, and a launcher's variable
      return std::string_view(rank) == "0";
    }
  }
  return true;
}

// Prints a line at the end of a job with MPI if another object defines the reductions, and none of their calls has come
// here.
void tell_who_takes_the_calls() {
  int initialized = 0;
  PMPI_Initialized(&initialized);
  if (initialized == 0 || in_child() || !may_speak()) {
    return;
  }
  if (const std::string level = environment("GRADWIRE_LOG").value_or("warn"); level == "error" || level == "off") {
    return;
  }
  std::string object;
  std::string names;
  using choice::Function;
  for (const Function function :
       {Function::mpi_allreduce, Function::mpi_reduce, Function::mpi_reduce_scatter, Function::mpi_reduce_scatter_block,
        Function::mpi_iallreduce, Function::mpi_ireduce_scatter, Function::mpi_ireduce_scatter_block}) {
    const std::string name(choice::name_of(function));
    if (const std::string taker = object_in_front(name.c_str()); !taker.empty()) {
      if (g_reached[static_cast<std::uint8_t>(function)]) {
        return;  // it forwards calls, and the others were not called
      }
      object = taker;
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  if (object.empty()) {
    return;
  }
  const bool program =
      std::filesystem::exists("/proc/self/exe") && std::filesystem::equivalent(object, "/proc/self/exe");
  std::fputs(("gradwire: " + object + " takes " + names +
              " before gradwire does and hands nothing on, so that gradwire saw none of these; " +
              (program ? "build the tool as a shared library and link or preload it behind gradwire\n"
                       : "put gradwire in front of it in LD_PRELOAD, or on the link line\n"))
                 .c_str(),
             stderr);
}

struct TellsAtTheEnd {
  ~TellsAtTheEnd() {
    try {
      tell_who_takes_the_calls();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): without memory it cannot be printed
    }
  }
};
const TellsAtTheEnd g_tells_at_the_end;

}  // namespace

void* find_next(const char* name) noexcept {
  static auto* const any = reinterpret_cast<AnyNext*>(::dlsym(RTLD_DEFAULT, "gradwire_any_next"));
  for (void* const found : {any == nullptr ? nullptr : any(name), ::dlsym(RTLD_NEXT, name)}) {
    if (found != nullptr && !is_of_gradwire(found)) {
      return found;
    }
  }
  return nullptr;
}

std::string object_in_front(const char* name) {
  const void* const first = ::dlsym(RTLD_DEFAULT, name);
  const void* const library = ::dlsym(RTLD_DEFAULT, (std::string("P") + name).c_str());
  if (first == nullptr || is_of_gradwire(first)) {
    return {};
  }
  const std::string object = object_of(first);
  // In a job that calls gradwire by the names of gradwire/replace/mpi.h the library itself may be in front.
  return library != nullptr && object == object_of(library) ? "" : object;
}

}  // namespace gradwire::mpi_preload
