// Finds which ranks of which MPI jobs have the drop-in, from the letters of their processes. It uses no sockets,
// threads or clocks.
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
  std::set<std::string> hosts = {};          // hosts of all of them
  std::set<std::string> hosts_of_root = {};  // hosts of ranks 0
  // For a job that goes on when ranks end: the number of processes that run elastic_main().
  int elastic = 0;
  int never_placed = 0;              // of these, processes that waited to become a rank until the job ended
  std::map<int, int> ended_as = {};  // number of these by exit status
};

class RegistrationWorlds {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Visitor = std::uint64_t;  // a connection
  struct Patience {
    std::chrono::milliseconds usual = std::chrono::seconds(5);     // after a world's first question
    std::chrono::milliseconds longest = std::chrono::seconds(60);  // if all missing ranks are still in MPI_Init
  };
  struct Process {
    std::uint64_t number = 0;  // random
    std::string job;           // the launcher's name of the job
    int rank = -1;             // in MPI_COMM_WORLD; before MPI_Init the launcher's number, if there is one
    std::string host;
  };
  struct Answer {
    Visitor visitor = 0;
    std::vector<int> missing;  // empty: all are there
  };

  explicit RegistrationWorlds(Patience patience) : patience_(patience) {}

  /// A process is about to call MPI_Init.
  void begin(Visitor visitor, const Process& process);
  /// A rank asks; returns whether there can be such a rank. Jobs of the same name are told apart by their ranks, each
  /// of which exists once in a world. A rank that comes late, and a process that asks again, get the answer of their
  /// world.
  [[nodiscard]] bool ask(Visitor visitor, const Process& process, int world_size, Time now);
  /// A process of a job that goes on when ranks end runs, or exits with this status or kNoPlace.
  void run(std::uint64_t process, const std::string& host);
  void end(std::uint64_t process, int status);
  /// A process has closed its connection.
  void leave(Visitor visitor);
  /// The answers that can be given now, each once.
  [[nodiscard]] std::vector<Answer> take_answers(Time now);
  /// The next moment at which there may be an answer without another letter.
  [[nodiscard]] std::optional<Time> next(Time now) const;
  [[nodiscard]] const SeenRanks& seen() const noexcept { return seen_; }

 private:
  struct World {
    std::string job;
    int size = 0;
    Time first;                          // time of the first question
    std::map<int, std::uint64_t> asked;  // processes by rank
    std::vector<Visitor> waiting;
    std::optional<std::vector<int>> missing;  // the answer, once there is one
  };

  [[nodiscard]] World& world_of(const Process& process, int size, Time now);
  [[nodiscard]] std::optional<std::vector<int>> missing_of(const World& world, Time now) const;

  Patience patience_;
  std::vector<World> worlds_;                           // in the order of their first questions
  std::vector<std::pair<Visitor, Process>> beginning_;  // processes that have not asked yet
  std::set<std::uint64_t> begun_;                       // processes
  std::set<std::uint64_t> asked_;
  std::set<std::uint64_t> running_;  // processes that run elastic_main()
  std::set<std::uint64_t> ended_;    // of these
  SeenRanks seen_;
};

}  // namespace gradwire::cli
