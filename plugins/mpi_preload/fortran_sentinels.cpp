#include "plugins/mpi_preload/fortran_sentinels.hpp"

#include <mpi.h>

#ifdef OPEN_MPI
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/loaded_objects.hpp"
#include "base/mutex.hpp"

namespace gradwire::mpi_preload {
namespace {

// The names in the spellings of compilers.
constexpr std::array kInPlace{"mpi_fortran_in_place_", "mpi_fortran_in_place__", "mpi_fortran_in_place",
                              "MPI_FORTRAN_IN_PLACE"};
constexpr std::array kBottom{"mpi_fortran_bottom_", "mpi_fortran_bottom__", "mpi_fortran_bottom", "MPI_FORTRAN_BOTTOM"};

struct Places {
  unsigned long long loads = 0;  // count_loads() when these were found
  std::vector<const void*> in_place;
  std::vector<const void*> bottom;
};

template <typename Names>
void add(const Names& names, void* object, std::vector<const void*>& places) {
  for (const char* name : names) {
    if (const void* const found = ::dlsym(object, name)) {
      places.push_back(found);
    }
  }
}

Places find_places() {
  Places places{.loads = count_loads(), .in_place = {}, .bottom = {}};
  find_in_loaded_objects([&](void* object) {
    add(kInPlace, object, places.in_place);
    add(kBottom, object, places.bottom);
    return false;
  });
  return places;
}

bool has(const std::vector<const void*>& places, const void* buffer) {
  return std::find(places.begin(), places.end(), buffer) != places.end();
}

}  // namespace

void* c_buffer(void* buffer) {
  static Mutex& mutex = *new Mutex;  // never destroyed: the job may call from an atexit handler
  static Places& known = *new Places;
  const MutexLock lock(mutex);
  if (known.loads != count_loads()) {
    Places found;
    {
      const MutexUnlock meanwhile(mutex);  // a thread that loads an object holds the loader's lock, and may come here
      found = find_places();
    }
    known = std::move(found);
  }
  if (has(known.in_place, buffer)) {
    return MPI_IN_PLACE;
  }
  return has(known.bottom, buffer) ? MPI_BOTTOM : buffer;
}

}  // namespace gradwire::mpi_preload
#endif
