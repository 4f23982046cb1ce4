// job CASE[,CASE...] [LEVEL]: LEVEL is the requested thread level, or "init" for MPI_Init; JOB_LEVEL is that of one
// rank. JOB_DIRECTORY is a directory to which it changes before it calls MPI. Rank 0 prints "CASE ok" for each case,
// once all ranks have passed it.
#include "tests/mpi_preload/plain_job.hpp"

#include <unistd.h>

#include <cstring>
#include <numeric>
#include <sstream>
#include <string>

namespace {

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {
    {"exact_types", job::exact_types},
    {"exact_shapes", job::exact_shapes},
    {"compressed", job::compressed},
    {"rooted", job::rooted},
    {"communicators", job::communicators},
    {"intercommunicator", job::intercommunicator},
    {"requests", job::requests},
    {"threads", job::threads},
    {"errors", job::errors},
    {"steps", job::steps},
    {"equal_layers", job::equal_layers},
    {"late_rank", job::late_rank},
    {"short_of_something", job::short_of_something},
    {"early_exit", job::early_exit},
    {"overlap", job::overlap},
    {"aliased", job::aliased},
    {"requests_only", job::requests_only},
    {"request_programs", job::request_programs},
    {"two_ranks", job::two_ranks},
    {"pipeline", job::pipeline},
    {"requests_on_a_core", job::requests_on_a_core},
    {"requests_given_up", job::requests_given_up},
    {"fortran_reals", job::fortran_reals},
    {"alternating", job::alternating},
    {"many_names", job::many_names},
    {"residuals", job::residuals},
    {"handlers", job::handlers},
    {"given_up", job::given_up},
    {"halves", job::halves},
    {"idle", job::idle},
    {"measured", job::measured},
    {"crossed_threads", job::crossed_threads},
    {"nonfinite", job::nonfinite},
    {"ended", job::ended},
    {"own_handlers", job::own_handlers},
    {"communicator_churn", job::communicator_churn},
    {"communicators_alive", job::communicators_alive},
    {"two_threads", job::two_threads},
    {"own_calls", job::own_calls},
    {"random_programs", job::random_programs},
    {"solver", job::solver},
    {"gram", job::gram},
    {"clusters", job::clusters},
    {"osu", job::osu},
    {"each_call", job::each_call},
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream rest(list);
  for (std::string name; std::getline(rest, name, ',');) {
    names.push_back(name);
  }
  return names;
}

void finalize() { MPI_Finalize(); }

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> names = split(argc > 1 ? argv[1] : "");
  const char* of_this_rank = std::getenv("JOB_LEVEL");
  const std::string level = of_this_rank != nullptr ? of_this_rank : argc > 2 ? argv[2] : "init";
  const char* directory = std::getenv("JOB_DIRECTORY");
  if (directory != nullptr && ::chdir(directory) != 0) {
    return 1;
  }
  int granted = 0;
  if (level == "init" || level == "atexit") {
    MPI_Init(&argc, &argv);
  } else if (level == "session") {
    job::early_session([] { MPI_Init(nullptr, nullptr); });
  } else {
    MPI_Init_thread(&argc, &argv, level == "serialized" ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &granted);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &job::g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job::g_size);
  bool known = !names.empty();
  for (const std::string& name : names) {
    const auto* const found =
        std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& c) { return name == c.name; });
    known = known && found != std::end(kCases);
    if (known) {
      found->run();
    }
  }
  int failures = 0;
  std::vector<int> of_each(static_cast<std::size_t>(job::g_size));
  MPI_Gather(&job::g_failures, 1, MPI_INT, of_each.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);  // not in the report
  failures = std::accumulate(of_each.begin(), of_each.end(), 0);
  if (job::g_rank == 0 && known && failures == 0) {
    for (const std::string& name : names) {
      std::printf("%s ok\n", name.c_str());
    }
    std::fflush(stdout);
  }
  if (level == "atexit") {
    std::atexit(finalize);
  } else {
    MPI_Finalize();
  }
  return known && job::g_failures == 0 ? 0 : 1;
}
