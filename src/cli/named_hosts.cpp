#include "cli/named_hosts.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <ostream>
#include <sstream>
#include <string_view>

#include "base/durable_file.hpp"
#include "base/regular_file.hpp"
#include "cli/launch.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

using Names = std::vector<std::string_view>;

bool is_one_of(std::string_view word, const Names& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::optional<int> positive(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? std::optional(value) : std::nullopt;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

// The name in an entry: "node1" in "node1:4".
std::string name_in(const std::string& entry) { return entry.substr(0, entry.find(':')); }

// Whether it is a plain name, and not a relative node of Open MPI ("+n1"), an IPv6 address or an excluded host
// ("^node").
bool is_plain(const std::string& name) { return !name.empty() && name.find_first_of("+[]^*") == std::string::npos; }

}  // namespace

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  static_cast<void>(::gethostname(own.data(), own.size() - 1));
  const std::string host = own.data();
  return name == "localhost" || name == "127.0.0.1" || name == host || name == host.substr(0, host.find('.'));
}

NamedHosts::NamedHosts(const std::vector<std::string>& command, std::size_t launcher, Library library)
    : command_(command),
      begin_(launcher + 1),
      end_(find_job_index(command, launcher + 1).value_or(command.size())),
      library_(library) {
  const bool mpich = library == Library::mpich;
  const Names lists = mpich ? Names{"-hosts", "--hosts", "-host", "--host"} : Names{"-H", "-host", "--host"};
  const Names files = mpich ? Names{"-f", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-machine"}
                            : Names{"-hostfile", "--hostfile", "-machinefile", "--machinefile"};
  bool understood =
      std::find(command.begin() + static_cast<std::ptrdiff_t>(begin_), command.end(), ":") == command.end();
  const auto take = [&](std::optional<std::size_t>& place, std::size_t value) {
    understood &= !place;  // a second one is not understood
    place = value;
  };
  for (std::size_t i = begin_; i + 1 < end_; ++i) {
    if (is_one_of(command[i], lists)) {
      take(list_, i + 1);
    } else if (is_one_of(command[i], files)) {
      take(file_, i + 1);
    } else if (is_one_of(command[i], {"-np", "--np", "-n", "--n", "-c"})) {
      take(ranks_, i + 1);
    }
  }
  if (understood && file_) {
    add_file(*file_);
  }
  if (understood && list_) {
    add_list(*list_);
  }
  const bool plain = std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return is_plain(host.name); });
  if (!understood || !plain) {
    hosts_.clear();
  }
}

void NamedHosts::add(const std::string& name, std::optional<int> slots) {
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& host) { return host.name == name; });
  if (found == hosts_.end()) {
    hosts_.push_back({name, slots});
  } else if (found->slots && slots) {
    *found->slots += *slots;
  } else {
    found->slots.reset();
  }
}

void NamedHosts::add_list(std::size_t value) {
  for (const std::string& entry : split(command_[value], ',')) {
    const std::string name = name_in(entry);
    const std::optional<int> slots = name == entry ? 1 : positive(std::string_view(entry).substr(name.size() + 1));
    add(name, file_ ? std::nullopt : slots);  // beside a file --host only selects hosts of the file
  }
}

void NamedHosts::add_file(std::size_t value) {
  for (const std::string& line : lines_if_regular(command_[value])) {
    lines_.push_back(line);
    const std::vector<std::string> words = words_in(line);
    if (words.empty()) {
      continue;
    }
    const std::string name = name_in(words.front());
    std::optional<int> slots = library_ == Library::mpich ? std::optional(1) : std::nullopt;
    if (name != words.front()) {
      slots = positive(std::string_view(words.front()).substr(name.size() + 1));
    }
    for (const std::string& word : words) {
      constexpr std::string_view kSlots = "slots=";
      slots = word.starts_with(kSlots) ? positive(std::string_view(word).substr(kSlots.size())) : slots;
    }
    add(name, slots);
  }
}

const char* NamedHosts::agent_variable() const noexcept {
  return library_ == Library::mpich ? "HYDRA_LAUNCHER_EXEC" : "OMPI_MCA_plm_rsh_agent";
}

std::vector<std::string> NamedHosts::agent(const std::string& variable) const {
  std::string line = variable;
  for (std::size_t i = begin_; i + 1 < end_; ++i) {
    const bool names_hosts = library_ == Library::mpich
                                 ? is_one_of(command_[i], {"-launcher-exec", "--launcher-exec"})
                                 : is_one_of(command_[i], {"plm_rsh_agent", "plm_ssh_agent", "orte_rsh_agent"});
    line = names_hosts ? command_[i + 1] : line;
  }
  std::vector<std::string> agent = words_in(line.substr(0, line.find(" : ")));  // "ssh -p 2222 : rsh"
  if (agent.empty()) {
    agent = {"ssh"};
  }
  if (std::filesystem::path(agent.front()).filename() == "ssh") {
    agent.insert(agent.end(), {"-o", "BatchMode=yes", "-o", "ConnectTimeout=5"});
  }
  return agent;
}

int NamedHosts::slots_without(const std::set<std::string>& gone) const {
  int sum = 0;
  for (const Host& host : hosts_) {
    if (!host.slots) {
      return std::numeric_limits<int>::max();
    }
    sum += gone.contains(host.name) ? 0 : *host.slots;
  }
  return sum;
}

std::string NamedHosts::list_without(const std::set<std::string>& gone) const {
  std::string list;
  for (const std::string& entry : split(command_[*list_], ',')) {
    if (!gone.contains(name_in(entry))) {
      list += (list.empty() ? "" : ",") + entry;
    }
  }
  return list;
}

void NamedHosts::write_copy(const std::set<std::string>& gone, const std::filesystem::path& copy) const {
  try {
    write_report_file(copy, [&](std::ostream& out) {
      for (const std::string& line : lines_) {
        const std::vector<std::string> words = words_in(line);
        if (words.empty() || !gone.contains(name_in(words.front()))) {
          out << line << '\n';
        }
      }
    });
  } catch (const Error&) {
    throw Error(ErrorCode::invalid_argument, "the copy " + copy.string() + " of the host file " + command_[*file_] +
                                                 " cannot be written; set TMPDIR to a folder that can");
  }
}

NamedHosts::Left NamedHosts::without(const std::set<std::string>& gone, const std::filesystem::path& copy) const {
  Left left{.command = command_};
  if (list_) {
    left.command[*list_] = list_without(gone);
  }
  if (file_ && !gone.empty()) {
    write_copy(gone, copy);
    left.command[*file_] = copy.string();
  }
  if (ranks_) {
    left.ranks_before = positive(command_[*ranks_]).value_or(0);
    const int slots = slots_without(gone);
    left.ranks = left.ranks_before <= slots_without({}) ? std::min(left.ranks_before, slots) : left.ranks_before;
    left.command[*ranks_] = left.ranks > 0 ? std::to_string(left.ranks) : command_[*ranks_];
  }
  return left;
}

}  // namespace gradwire::cli
