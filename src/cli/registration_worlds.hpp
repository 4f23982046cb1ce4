// Which ranks of which MPI jobs have the drop-in, from what their processes say: without sockets, threads and clocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::cli {

/// Counts what `gradwire run` has learnt of the ranks so far. Messages use it to explain a missing report and to say
/// how the ranks ended.
struct SeenRanks {
  int begun = 0;                             // processes that were about to call MPI_Init
  int asked = 0;                             // ranks that came out of it
  std::set<std::string> hosts = {};          // of all of them
  std::set<std::string> hosts_of_root = {};  // of ranks 0
  // Of a job that goes on when ranks end: processes that elastic_main() runs in.
  int elastic = 0;
  int without_place = 0;             // of these, waited for a place as a rank, and the job ended before
  std::map<int, int> ended_as = {};  // of these, how many said that they exit with a status
};

class RegistrationWorlds {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Visitor = std::uint64_t;  // a connection
  struct Patience {
    std::chrono::milliseconds usual = std::chrono::seconds(5);     // after a world's first question
    std::chrono::milliseconds longest = std::chrono::seconds(60);  // where all missing ranks are still in MPI_Init
  };
  struct Process {
    std::uint64_t number = 0;  // random
    std::string job;           // as its launcher calls it
    int rank = -1;             // of MPI_COMM_WORLD; before MPI_Init as far as the launcher says it
    std::string host;
  };
  struct Answer {
    Visitor visitor = 0;
    std::vector<int> missing;  // none: all are there
  };

  explicit RegistrationWorlds(Patience patience) : patience_(patience) {}

  /// It is about to call MPI_Init.
  void begin(Visitor visitor, const Process& process);
  /// Whether it can be: that there is such a rank. Jobs of the same name are kept apart by their ranks: of each there
  /// is one in a world. A rank that comes late, and a process that asks again, get the answer of its world.
  [[nodiscard]] bool ask(Visitor visitor, const Process& process, int world_size, Time now);
  /// One of a job that goes on when ranks end: it runs; it exits with this status, or kNoPlace.
  void run(std::uint64_t process, const std::string& host);
  void end(std::uint64_t process, int status);
  /// It has closed its connection.
  void leave(Visitor visitor);
  /// Those that can be given now; each once.
  [[nodiscard]] std::vector<Answer> take_answers(Time now);
  /// When there may be one without another call.
  [[nodiscard]] std::optional<Time> next(Time now) const;
  [[nodiscard]] const SeenRanks& seen() const noexcept { return seen_; }

 private:
  struct World {
    std::string job;
    int size = 0;
    Time first;                          // question
    std::map<int, std::uint64_t> asked;  // processes by rank
    std::vector<Visitor> waiting;
    std::optional<std::vector<int>> missing;  // the answer, once there is one
  };

  [[nodiscard]] World& world_of(const Process& process, int size, Time now);
  [[nodiscard]] std::optional<std::vector<int>> missing_of(const World& world, Time now) const;

  Patience patience_;
  std::vector<World> worlds_;                           // in the order of their first questions
  std::vector<std::pair<Visitor, Process>> beginning_;  // those that have not asked
  std::set<std::uint64_t> begun_;                       // processes
  std::set<std::uint64_t> asked_;
  std::set<std::uint64_t> running_;  // those that elastic_main() runs in
  std::set<std::uint64_t> ended_;    // of these
  SeenRanks seen_;
};

}  // namespace gradwire::cli
