#include "cli/host_watch.hpp"

#include <chrono>
#include <set>

#include "base/text.hpp"
#include "cli/process.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

// "; on 1 of 2 hosts": a text about the hosts that are gone, and the ranks.
std::string told(const std::set<std::string>& gone, std::size_t all, const NamedHosts::Left& left) {
  std::string text;
  if (!gone.empty()) {
    text = ", on " + std::to_string(all - gone.size()) + " of " + std::to_string(all) + " hosts (without ";
    for (const std::string& name : gone) {
      text += (name == *gone.begin() ? "" : ", ") + text::printable(name);
    }
    text += gone.size() == 1 ? ", which does not answer)" : ", which do not answer)";
  }
  if (left.ranks < left.ranks_before) {
    text += ", with " + std::to_string(left.ranks) + (left.ranks == 1 ? " rank" : " ranks") + " instead of " +
            std::to_string(left.ranks_before);
  }
  return text;
}

}  // namespace

HostWatch::HostWatch(const std::vector<std::string>& command, std::optional<std::size_t> launcher,
                     std::optional<Library> library)
    : all_hosts_(command), command_(command) {
  if (!launcher || !library) {
    return;
  }
  named_.emplace(command, *launcher, *library);
  agent_ = named_->agent(variable(named_->agent_variable()));
  if (named_->hosts().size() < 2) {
    return;
  }
  std::vector<std::string> others;
  for (const NamedHosts::Host& host : named_->hosts()) {
    if (!is_this_host(host.name)) {
      others.push_back(host.name);
    }
  }
  watched_ = answering(others);
}

std::string HostWatch::look() {
  if (watched_.empty()) {
    return "";
  }
  std::set<std::string> gone(watched_.begin(), watched_.end());
  for (const std::string& name : answering(watched_)) {
    gone.erase(name);
  }
  command_ = all_hosts_;
  const std::size_t all = named_->hosts().size();
  if (gone.size() == all) {
    return ", on all hosts, though none of them answers";
  }
  try {
    const NamedHosts::Left left = named_->without(gone, named_->in_file() ? copy() : std::filesystem::path());
    command_ = left.command;
    return told(gone, all, left);
  } catch (const Error& error) {
    return std::string(", on all hosts: ") + error.what();
  }
}

std::vector<std::string> HostWatch::answering(const std::vector<std::string>& names) const {
  constexpr std::chrono::seconds kLongest{10};
  std::vector<std::vector<std::string>> questions;
  for (const std::string& name : names) {
    questions.push_back(agent_);
    questions.back().insert(questions.back().end(), {name, "true"});
  }
  const std::vector<bool> answered = succeed(questions, kLongest);
  std::vector<std::string> there;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (answered[i]) {
      there.push_back(names[i]);
    }
  }
  return there;
}

std::filesystem::path HostWatch::copy() {
  try {
    if (!folder_) {
      folder_ = std::make_unique<TemporaryFolder>();
    }
    return folder_->path() / "hosts";
  } catch (const Error&) {
    return temporary_parent() / "gradwire-hosts";  // writing this fails too, with an error that names it
  }
}

}  // namespace gradwire::cli
