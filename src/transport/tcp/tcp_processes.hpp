// Processes that reach each other by TCP alone, in messages beside the steps and in worlds. Others may join them while
// they run: tcp_introduction.hpp says how.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "gradwire/processes.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "transport/witness/agent.hpp"

namespace gradwire::transport {

struct ProcessesOptions {
  std::string join_file = {};                  // others may join by this file; empty: no one can
  std::function<void()> on_loss = {};          // called by note_loss()
  std::shared_ptr<witness::Agent> agent = {};  // this process's agent; none: only its own host sees its end
  bool worlds = true;                          // connect() will be called, and needs descriptors
};
/// The processes of the start; process i is rank i. Collective like make_tcp(); also uses the keys "tcp/process/<rank>"
/// and "tcp/process-host/<rank>" of the rendezvous. With a join file others may join: rank 0 writes it, and each
/// process listens on all addresses of its host (of options.interface where that is named). Error(invalid_argument) on
/// all where the file cannot be written, is no join file, or belongs to a job that runs.
[[nodiscard]] std::shared_ptr<Processes> make_tcp_processes(const Rendezvous& rendezvous, const TcpOptions& options,
                                                            ProcessesOptions more = {});

struct JoinOptions {
  std::string join_file;
  std::string interface = {};  // the only interface to use
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  std::chrono::milliseconds first_word{std::chrono::seconds(5)};  // after this it logs for which process it waits
  std::shared_ptr<witness::Agent> agent = {};                     // this process's agent
  std::shared_ptr<const tcp::ConnectionKeys> keys = {};           // the job's; null: those of GRADWIRE_KEY
};
/// Makes this process join a running job. Afterwards it knows all others, they know it, and others may join by it.
/// Error(timeout) where no process in the file answers, or where one, which is named, does not answer until the
/// timeout. Error(invalid_argument) without a file, Error(mismatch) where it is of another version of gradwire.
[[nodiscard]] std::shared_ptr<Processes> join_tcp_processes(const JoinOptions& options);

}  // namespace gradwire::transport
