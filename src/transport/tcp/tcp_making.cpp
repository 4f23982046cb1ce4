// How the processes of the start find each other, and how others join them.
#include <utility>

#include "gradwire/error.hpp"
#include "transport/tcp/tcp_connect.hpp"
#include "transport/tcp/tcp_descriptors.hpp"
#include "transport/tcp/tcp_join_file.hpp"
#include "transport/tcp/tcp_joining.hpp"
#include "transport/tcp/tcp_processes.hpp"
#include "transport/tcp/tcp_seat.hpp"

namespace gradwire::transport {
namespace tcp {
namespace {

using Id = Processes::Id;
using State = Acquaintance::State;

// Descriptors for each other process, beside those of a world: two lanes, and those that show its end, which are two
// where the system refuses to watch it.
constexpr std::size_t kOfProcess = 4;
constexpr std::size_t kOfWorld = 2;

std::string introduction_key(int rank) { return "tcp/process/" + std::to_string(rank); }
std::string host_key(int rank) { return "tcp/process-host/" + std::to_string(rank); }

// Whether all processes are on one host, where they reach each other by its loopback. Collective.
bool on_one_host(const Rendezvous& rendezvous, const TcpOptions& options) {
  const std::string own = host_identity();
  rendezvous.put(host_key(options.rank), own);
  bool one = true;
  for (int rank = 0; rank < options.world_size; ++rank) {
    one = (rank == options.rank || rendezvous.get(host_key(rank), options.timeout) == own) && one;
  }
  return one;
}

// Each rank tells the others how it can be joined, or with this prefix why it cannot.
constexpr std::string_view kProblem = "problem ";

std::vector<Acquaintance> introduce(const Rendezvous& rendezvous, const TcpOptions& options, const Acquaintance& own,
                                    const std::string& problem) {
  rendezvous.put(introduction_key(options.rank), problem.empty() ? own.to_text() : std::string(kProblem) + problem);
  std::vector<Acquaintance> all;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank == options.rank) {
      all.push_back(own);
      continue;
    }
    const std::string text = rendezvous.get(introduction_key(rank), options.timeout);
    if (text.starts_with(kProblem)) {
      throw Error(ErrorCode::invalid_argument, text.substr(kProblem.size()));
    }
    auto read = Acquaintance::from_text(text);
    if (!read) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(rank) + " says what no process does (" +
                                           text.substr(0, 80) + "); do all ranks run the same version of gradwire?");
    }
    all.push_back(std::move(*read));
  }
  return all;
}

}  // namespace
}  // namespace tcp

std::shared_ptr<Processes> make_tcp_processes(const Rendezvous& rendezvous, const TcpOptions& given,
                                              ProcessesOptions more) {
  using tcp::Acquaintance;
  TcpOptions options = given;
  if (options.keys == nullptr) {
    options.keys = tcp::ConnectionKeys::of_job();
  }
  const bool open = !more.join_file.empty();
  const bool one_host = !open && tcp::on_one_host(rendezvous, options);
  std::optional<Error> problem;
  std::optional<tcp::JoinFileClaim> claim;
  tcp::Listening listening;
  const auto rank = static_cast<Processes::Id>(options.rank);
  const auto size = static_cast<Processes::Id>(options.world_size);
  Acquaintance own{.id = rank, .name = "rank " + std::to_string(rank) + " (" + tcp::process_name() + ")"};
  try {
    const std::size_t of_world = more.worlds ? tcp::kOfWorld : 0;
    tcp::check_descriptors(size - 1, tcp::kOfProcess + of_world,
                           more.worlds ? "rank " + std::to_string(rank) + ": " : "");
    if (open && rank == 0) {
      claim.emplace(more.join_file, options.keys.get());
    }
    listening = tcp::listen_on(tcp::addresses_for(options.interface, one_host), "for processes of the job: ");
  } catch (const Error& error) {
    problem = error;  // the other ranks must learn it, too
  }
  own.card = listening.card;
  options.go_on = options.go_on ? options.go_on : [] {};
  auto witnesses = std::make_shared<witness::Witnesses>(own.card.nonce);
  own.host = tcp::host_identity();
  own.witness = witnesses->name();
  std::vector<Acquaintance> all = tcp::introduce(rendezvous, options, own, problem ? problem->what() : std::string());
  if (problem) {
    throw Error(*problem);
  }
  tcp::tell_where(listening, options.keys != nullptr);
  tcp::Connections made = tcp::connect_all(rendezvous, options);
  tcp::Seat seat{.self = rank,
                 .start = size,
                 .own = std::move(own),
                 .others = {},
                 .listeners = std::move(listening.listeners),
                 .witnesses = std::move(witnesses),
                 .agent = std::move(more.agent),
                 .keys = options.keys,
                 .join_file = more.join_file};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != rank) {
      seat.others.push_back(
          {.who = all[i], .prompt = std::move(made.peers[i].control), .bulk = std::move(made.peers[i].messages)});
    }
  }
  auto processes = tcp::make_processes(std::move(seat), open, options.interface, std::move(more.on_loss));
  if (open && rank == 0) {
    tcp::write_join_file(more.join_file, all);
  }
  return processes;
}

std::shared_ptr<Processes> join_tcp_processes(const JoinOptions& options) {
  tcp::Seat seat = tcp::find_seat(options);
  seat.agent = options.agent;
  seat.join_file = options.join_file;
  const tcp::Acquaintance own = seat.own;
  auto processes = tcp::make_processes(std::move(seat), true, options.interface, {});
  tcp::append_to_join_file(options.join_file, own);
  return processes;
}

}  // namespace gradwire::transport
