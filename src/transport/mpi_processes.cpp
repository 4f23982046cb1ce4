// MPI processes of which some may end. They reach each other by TCP connections of their own and learn of ends from
// witnesses (tcp/tcp_links.hpp), without MPI. A new world is MPI_Comm_create_group() of the survivors, which works with
// any MPI whose launcher lets them live.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/forked.hpp"
#include "base/start_directory.hpp"
#include "base/timeout.hpp"
#include "gradwire/mpi_transport.hpp"
#include "transport/mpi_check.hpp"
#include "transport/mpi_check_in.hpp"
#include "transport/mpi_communicators.hpp"
#include "transport/mpi_environment.hpp"
#include "transport/mpi_transport.hpp"
#include "transport/tcp/tcp_processes.hpp"
#include "transport/tcp/tcp_report_end.hpp"

namespace gradwire::transport {
namespace {

constexpr std::size_t kMostText = 4000;  // a name and addresses: kMostAddresses of each kind need at most 2400

// Texts of all ranks, by rank. Collective.
std::vector<std::string> exchange_texts(MPI_Comm comm, const std::string& mine, std::chrono::milliseconds timeout) {
  std::array<char, kMostText + 2> record{};
  record[0] = 1;  // RecordExchange requires that it is not zero
  const std::size_t size = std::min(mine.size(), kMostText);
  std::memcpy(record.data() + 1, mine.data(), size);
  const Records records = exchange_records(comm, std::as_bytes(std::span(record)), timeout);
  throw_if_missing(records, record.size(), timeout, "telling ranks each other's addresses");
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < records.all.size(); at += record.size()) {
    texts.emplace_back(reinterpret_cast<const char*>(records.all.data() + at + 1));
  }
  return texts;
}

// Every rank puts texts under keys of its own in the same order, so each put is an exchange among all ranks.
class MpiRendezvous {
 public:
  MpiRendezvous(MPI_Comm comm, int rank, std::chrono::milliseconds timeout)
      : comm_(comm), rank_(std::to_string(rank)), timeout_(timeout) {}

  [[nodiscard]] Rendezvous make() {
    return {.put = [this](const std::string& key, const std::string& value) { put(key, value); },
            .get = [this](const std::string& key, std::chrono::milliseconds /*limit*/) { return texts_.at(key); }};
  }

 private:
  void put(const std::string& key, const std::string& value) {
    const std::string stem = key.substr(0, key.size() - rank_.size());
    const std::vector<std::string> texts = exchange_texts(comm_, value, timeout_);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      texts_[stem + std::to_string(rank)] = texts[rank];
    }
  }

  MPI_Comm comm_;
  std::string rank_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::string> texts_;
};

std::atomic<bool> g_lost_ranks = false;  // this process knows of a loss, or of another world than the job's first

class MpiProcesses final : public Processes {
 public:
  MpiProcesses(MPI_Comm comm, const std::string& interface, std::chrono::milliseconds timeout,
               std::shared_ptr<witness::Agent> agent) {
    int rank = 0;
    int size = 1;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    base_ = duplicate(comm, timeout, "duplicating the communicator (MPI_Comm_idup)");
    nodes_ = find_nodes(base_, rank, size, timeout);
    MpiRendezvous rendezvous(base_, rank, timeout);
    tcp_ = make_tcp_processes(rendezvous.make(),
                              {.rank = rank, .world_size = size, .interface = interface, .timeout = timeout},
                              {.agent = std::move(agent), .worlds = false});
  }

  // The communicator is left to MPI: freeing it is collective, and ranks may be gone.
  [[nodiscard]] Id self() const noexcept override { return tcp_->self(); }
  [[nodiscard]] std::vector<Id> all() const override { return tcp_->all(); }
  [[nodiscard]] std::string describe(Id who) const override { return tcp_->describe(who); }

  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override { tcp_->send(to, message, lane); }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return tcp_->unsent(to, lane); }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override { return tcp_->hear(wait); }
  void wake() noexcept override { tcp_->wake(); }
  void end() noexcept override { tcp_->end(); }
  void enter(std::uint32_t epoch) noexcept override { tcp_->enter(epoch); }
  void count(std::uint64_t step) noexcept override { tcp_->count(step); }
  void trust_resets() noexcept override { tcp_->trust_resets(); }
  void note_loss() noexcept override { g_lost_ranks = true; }
  void note_no_place() noexcept override { tcp_->note_no_place(); }
  void leave_out(Id who) noexcept override { tcp_->leave_out(who); }

  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override {
    const std::vector<int> ranks(members.begin(), members.end());
    g_lost_ranks = g_lost_ranks || epoch > 1;
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group left = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(base_, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &left), "MPI_Group_incl");
    MpiOptions options;
    options.timeout = timeout;
    options.some_may_end = true;
    MPI_Comm comm = create_from(left, 2 * epoch);
    options.notices = create_from(left, 2 * epoch + 1);
    MPI_Group_free(&left);
    MPI_Group_free(&all);
    for (const Id who : members) {  // the lowest member on each node gives it its number
      const auto first = std::ranges::find(members, nodes_.at(who), [&](Id other) { return nodes_.at(other); });
      options.nodes.push_back(static_cast<std::uint32_t>(first - members.begin()));
    }
    return make_mpi(comm, options);
  }

 private:
  static constexpr std::uint32_t kTags = 32768;  // MPI promises at least so many

  // Tags fall from call to call: while an abandoned call never ends, Open MPI lets only calls with lower tags through
  // (it takes communicator ids in the order of tags).
  [[nodiscard]] MPI_Comm create_from(MPI_Group group, std::uint32_t number) const {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(
        MPI_Comm_create_group(base_, group, static_cast<int>(kTags - 1 - number % kTags), &comm),
        "making a communicator of the ranks that are left (MPI_Comm_create_group; ULFM refuses that: start the job "
        "with mpirun --enable-recovery, and without --with-ft)");
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return comm;
  }

  MPI_Comm base_ = MPI_COMM_NULL;
  std::vector<std::uint32_t> nodes_;  // the node of each process, named by its lowest rank
  std::shared_ptr<Processes> tcp_;
};

// The agent that elastic_processes() starts.
std::shared_ptr<witness::Agent>& agent_of_this_process() {
  static auto& agent = *new std::shared_ptr<witness::Agent>;  // never destroyed: it must outlive this process
  return agent;
}

}  // namespace
}  // namespace gradwire::transport

namespace gradwire::mpi {

std::shared_ptr<Processes> make_processes(MPI_Comm comm, std::chrono::milliseconds timeout) {
  transport::check_communicator(comm);
  timeout = checked_timeout(timeout, "gradwire::mpi::make_processes");
  if (transport::mpi_thread_level() < MPI_THREAD_MULTIPLE) {
    throw Error(ErrorCode::unsupported,
                "gradwire::mpi::make_processes: a job that goes on without ranks needs MPI_THREAD_MULTIPLE; initialise "
                "with MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted)");
  }
  return make_shared_at_home<transport::MpiProcesses>(comm, environment("GRADWIRE_SOCKET_IFNAME").value_or(""), timeout,
                                                      transport::agent_of_this_process());
}

std::shared_ptr<Processes> make_processes(MPI_Comm comm, const JoinFile& join_file) {
  transport::check_communicator(comm);
  const JoinFile checked = with_checked_timeout(join_file, "gradwire::mpi::make_processes");
  MPI_Comm own = transport::duplicate(comm, checked.timeout, "duplicating the communicator (MPI_Comm_idup)");
  int rank = 0;
  int size = 1;
  transport::check_mpi(MPI_Comm_rank(own, &rank), "MPI_Comm_rank");
  transport::check_mpi(MPI_Comm_size(own, &size), "MPI_Comm_size");
  transport::MpiRendezvous rendezvous(own, rank, checked.timeout);
  return transport::make_tcp_processes(
      rendezvous.make(), {.rank = rank, .world_size = size, .interface = checked.interface, .timeout = checked.timeout},
      {.join_file = checked.path,
       .on_loss = [] { transport::g_lost_ranks = true; },
       .agent = transport::agent_of_this_process()});
}

std::shared_ptr<Processes> join_processes(const JoinFile& join_file) {
  const JoinFile checked = with_checked_timeout(join_file, "gradwire::mpi::join_processes");
  return transport::join_tcp_processes({.join_file = checked.path,
                                        .interface = checked.interface,
                                        .timeout = checked.timeout,
                                        .agent = transport::agent_of_this_process()});
}

std::shared_ptr<Processes> elastic_processes(int& argc, char**& argv) {
  const auto join = environment("GRADWIRE_JOIN");
  const auto let_join = environment("GRADWIRE_LET_JOIN");
  if (join && let_join) {
    throw Error(ErrorCode::invalid_argument,
                "GRADWIRE_JOIN and GRADWIRE_LET_JOIN are both set; a process that joins a job lets others join by the "
                "same file, so unset the latter");
  }
  const std::string interface = environment("GRADWIRE_SOCKET_IFNAME").value_or("");
  // The agent is forked before MPI_Init, so that it has neither MPI's threads nor its memory.
  transport::agent_of_this_process() = transport::witness::Agent::start();
  if (join) {
    return join_processes({.path = from_start_directory(*join), .interface = interface});
  }
  transport::tcp::report_end_of_this_process();
  int granted = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &granted);
  return let_join
             ? make_processes(MPI_COMM_WORLD, JoinFile{.path = from_start_directory(*let_join), .interface = interface})
             : make_processes(MPI_COMM_WORLD);
}

void end_process(int exit_code) {
  transport::tcp::this_process_ends(exit_code);  // sent first, since MPI_Finalize may block for too long
  const bool all_ranks_alive = exit_code == 0 && !transport::g_lost_ranks;
  // Ranks may have ended since then, and nothing limits how long MPI waits for them.
  std::thread([exit_code, limit = std::chrono::seconds(all_ranks_alive ? 60 : 3)] {
    std::this_thread::sleep_for(limit);
    std::_Exit(exit_code);
  }).detach();
  std::fflush(nullptr);
  if (all_ranks_alive && transport::mpi_is_up()) {
    MPI_Finalize();
  }
  std::exit(exit_code);  // NOLINT(concurrency-mt-unsafe): only the thread above also ends the process
}

}  // namespace gradwire::mpi
