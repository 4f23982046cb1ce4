// Findings about the build, installed files and settings, which must be the same on every rank.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "plugins/mpi_doctor/findings.hpp"
#include "policy/unknown_key.hpp"

namespace gradwire::doctor {
namespace {

using Of = std::function<std::string(const Facts&)>;

/// The values and the ranks that have them, the most frequent first.
std::vector<std::pair<std::string, std::vector<int>>> votes(const std::vector<Facts>& facts, const Of& of) {
  std::map<std::string, std::vector<int>> by_value;
  for (const Facts& rank : facts) {
    by_value[of(rank)].push_back(rank.rank);
  }
  std::vector<std::pair<std::string, std::vector<int>>> sorted(by_value.begin(), by_value.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() > b.second.size() : a.second.front() < b.second.front();
  });
  return sorted;
}

std::string have(const std::vector<int>& ranks) { return ranks.size() == 1 ? " has " : " have "; }
std::string or_none(const std::string& value) { return value.empty() ? "none" : value; }

/// Adds one finding for each group of ranks that differ from most ranks; one "ok" if none does.
void compare(const std::vector<Facts>& facts, const Of& of, const Finding& different, const std::string& same,
             Findings& findings) {
  const auto groups = votes(facts, of);
  if (groups.size() == 1) {
    findings.push_back(
        {Severity::ok, different.subject, same.empty() ? groups.front().first : same, "", groups.front().second});
    return;
  }
  for (std::size_t i = 1; i < groups.size(); ++i) {
    Finding finding = different;
    finding.seen = or_none(groups[i].first) + ", where " + where(groups[0].second, facts) + have(groups[0].second) +
                   or_none(groups[0].first);
    finding.ranks = groups[i].second;
    findings.push_back(finding);
  }
}

void find_in_preloads(const std::vector<Facts>& facts, Findings& findings) {
  std::set<std::string> libraries;  // of all hosts
  std::map<std::string, std::vector<int>> ranks_with;
  for (const Facts& rank : facts) {
    for (const PreloadFile& file : rank.preloads) {
      if (!file.path.empty()) {
        libraries.insert(file.name);
      }
    }
  }
  if (libraries.empty()) {
    findings.push_back({Severity::problem, "preload", "no library that gradwire run could preload lies beside the tool",
                        "build or install gradwire with MPI, and the library in lib beside the tool's bin",
                        votes(facts, [](const Facts&) { return ""; }).front().second});
  }
  for (const std::string& library : libraries) {
    const auto of = [&](const Facts& rank) {
      for (const PreloadFile& file : rank.preloads) {
        if (file.name == library && !file.path.empty()) {
          return file.path.substr(file.path.rfind('/') + 1) + " " + file.fingerprint.substr(0, 8);
        }
      }
      return std::string();
    };
    compare(facts, of,
            {Severity::problem,
             "preload (" + library + ")",
             "",
             "install the same gradwire at the same path on every host: where it is missing or differs, no call of "
             "the job is compressed",
             {}},
            "", findings);
  }
}

void find_in_policies(const std::vector<Facts>& facts, Findings& findings) {
  bool valid = true;
  for (const Facts& rank : facts) {
    if (!rank.policy.error.empty()) {
      valid = false;
      findings.push_back({Severity::problem,
                          "policy",
                          rank.policy.error,
                          "mend the file, and see that every host has it at this path (gradwire check FILE); as it "
                          "is, no call of the job is compressed",
                          {rank.rank}});
    }
  }
  const auto groups = votes(facts, [](const Facts& rank) { return rank.policy.fingerprint; });
  const auto path_of = [&](const std::vector<int>& ranks) {
    return or_none(facts[static_cast<std::size_t>(ranks.front())].policy.path);
  };
  if (groups.size() == 1 && valid) {
    findings.push_back({Severity::ok, "policy",
                        groups[0].first.empty() ? "GRADWIRE_POLICY is not set: the built-in policy"
                                                : path_of(groups[0].second) + " " + groups[0].first.substr(0, 8),
                        "", groups[0].second});
    return;
  }
  for (std::size_t i = 1; i < groups.size(); ++i) {
    std::vector<int> ranks;
    std::copy_if(groups[i].second.begin(), groups[i].second.end(), std::back_inserter(ranks),
                 [&](int rank) { return facts[static_cast<std::size_t>(rank)].policy.error.empty(); });
    if (ranks.empty()) {
      continue;
    }
    const std::string mine = path_of(ranks);
    const std::string theirs = path_of(groups[0].second);
    findings.push_back({Severity::problem, "policy",
                        (groups[i].first.empty() ? "GRADWIRE_POLICY is not set" : "GRADWIRE_POLICY is " + mine) +
                            ", where " + where(groups[0].second, facts) + have(groups[0].second) +
                            (mine == theirs && mine != "none" ? "another file of this name" : theirs),
                        "give every rank the same file: gradwire run --policy FILE does, or mpirun -x "
                        "GRADWIRE_POLICY; as it is, no call of the job is compressed",
                        ranks});
  }
}

void find_in_keys(const std::vector<Facts>& facts, Findings& findings) {
  const std::size_t before = findings.size();
  for (const Facts& rank : facts) {
    if (!rank.key.error.empty()) {
      findings.push_back({Severity::problem,
                          "encryption",
                          rank.key.error,
                          "mend that on this host; as it is, no session begins there",
                          {rank.rank}});
    }
  }
  if (findings.size() > before) {
    return;
  }
  compare(
      facts, [](const Facts& rank) { return rank.key.check; },
      {Severity::problem,
       "encryption",
       "",
       "copy one key file to every host, and set GRADWIRE_KEY on every rank: mpirun -x GRADWIRE_KEY; as it is, "
       "sessions "
       "end at their start",
       {}},
      facts.front().key.check.empty()
          ? "not encrypted, no rank has a key: who listens on the network sees the gradients (gradwire key new)"
          : "what sessions, communicators and tables in host memory send, and calls that the drop-in for MPI "
            "compresses, with the key of check value " +
                facts.front().key.check +
                "; calls that pass, and other drop-ins, do without and say so; device memory and elastic steps over "
                "MPI refuse it",
      findings);
}

// Says where strangers could connect to. Nothing of gradwire listens in a job whose ranks meet by MPI alone.
void find_in_addresses(const std::vector<Facts>& facts, Findings& findings) {
  for (const Facts& rank : facts) {
    if (rank.rank != rank.node) {
      continue;  // its host has been told
    }
    std::string all;
    for (const std::string& address : rank.addresses) {
      all += (all.empty() ? "" : ", ") + address;
    }
    const auto metrics = rank.variables.find("GRADWIRE_METRICS");
    const bool serves = metrics != rank.variables.end() && metrics->second.find("http:") != std::string::npos;
    findings.push_back(
        {Severity::ok,
         "listening",
         (all.empty() ? "no address that other hosts reach" : all) +
             ", at ports that the system picks, for PyTorch over TCP and for jobs that others may join, " +
             (rank.key.check.empty() ? "in clear text" : "by TLS 1.3") +
             "; gradwire run, for the registration of ranks, in clear text (--no-register opens no port); MPI's own "
             "connections are not counted" +
             (serves ? "; metrics by HTTP, GRADWIRE_METRICS=" + metrics->second : ""),
         "",
         {rank.rank}});
  }
}

// Whether ranks must have the same value: with different ones they refuse to compress, or send differently. Other
// variables, such as a report's file, may differ.
bool must_agree(std::string_view name) {
  constexpr std::array<std::string_view, 10> kNames{
      "GRADWIRE_CODEC",   "GRADWIRE_ERROR_FEEDBACK", "GRADWIRE_F64",     "GRADWIRE_MAX_ERROR",
      "GRADWIRE_TIMEOUT", "GRADWIRE_THREADS",        "GRADWIRE_DISABLE", "GRADWIRE_DRY_RUN",
      "GRADWIRE_STAGED",  "GRADWIRE_TORCH_TRANSPORT"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void find_in_variables(const std::vector<Facts>& facts, Findings& findings) {
  const std::size_t before = findings.size();
  std::vector<std::string_view> known;
  for (const EnvironmentVariable& variable : environment_variables()) {
    known.push_back(variable.name);
    const std::string name(variable.name);
    const auto of = [&](const Facts& rank) {
      const auto found = rank.variables.find(name);
      return found == rank.variables.end() ? std::string() : found->second;
    };
    if (name != "GRADWIRE_POLICY" && name != "GRADWIRE_KEY" && votes(facts, of).size() > 1) {
      const bool problem = must_agree(name);
      compare(facts, of,
              {problem ? Severity::problem : Severity::note,
               name,
               "",
               problem ? "give every rank the same value: mpirun -x " + name + ", or gradwire run, which hands it on"
                       : "nothing, if that is meant",
               {}},
              "", findings);
    }
  }
  for (const Facts& rank : facts) {
    for (const std::string& error : rank.environment_errors) {
      findings.push_back({Severity::problem,
                          "environment",
                          error,
                          "correct it or unset it; gradwire info lists the variables",
                          {rank.rank}});
    }
    for (const std::string& place : rank.unwritable) {
      findings.push_back({Severity::warning,
                          "environment",
                          place,
                          "name a directory that this rank may write, else the job runs without",
                          {rank.rank}});
    }
    for (const auto& [name, value] : rank.variables) {
      const bool table = std::find(known.begin(), known.end(), name) != known.end();
      const std::string nearest(table ? "" : policy::nearest_name(name, known));
      if (!nearest.empty()) {
        findings.push_back({Severity::warning,
                            "environment",
                            name + " is no variable of gradwire, so it does nothing",
                            "did you mean " + nearest + "?",
                            {rank.rank}});
      }
    }
    if (const auto found = rank.variables.find("GRADWIRE_DISABLE");
        found != rank.variables.end() && found->second == "1") {
      findings.push_back({Severity::warning,
                          "environment",
                          "GRADWIRE_DISABLE is 1, so no rank compresses anything",
                          "unset it to compress",
                          {rank.rank}});
    }
  }
  if (findings.size() == before) {
    std::string set;
    for (const auto& [name, value] : facts.front().variables) {
      if (std::find(known.begin(), known.end(), name) != known.end()) {
        set += (set.empty() ? "" : " ") + name + "=" + value;
      }
    }
    findings.push_back({Severity::ok, "environment", set.empty() ? "no variable of gradwire is set" : set, "",
                        votes(facts, [](const Facts&) { return ""; }).front().second});
  }
}

}  // namespace

void find_in_build(const std::vector<Facts>& facts, Findings& findings) {
  const auto version = [](const Facts& rank) { return rank.version + " (" + rank.build + ")"; };
  compare(facts, version,
          {Severity::problem,
           "gradwire",
           "",
           "install the same package on every host: ranks of different versions do not compress",
           {}},
          "", findings);
  find_in_preloads(facts, findings);
  compare(
      facts, [](const Facts& rank) { return rank.mpi; },
      {Severity::problem, "MPI", "", "start all ranks with one MPI, of one version on every host", {}}, "", findings);
  for (const Facts& rank : facts) {
    const bool multiple = rank.threads == "MPI_THREAD_MULTIPLE";
    findings.push_back(
        {multiple ? Severity::ok : Severity::warning,
         "threads",
         multiple ? rank.threads : rank.threads + " is all that this MPI gives where MPI_THREAD_MULTIPLE is asked for",
         multiple ? ""
                  : "use an MPI that was built with it: without it calls that return a request pass uncompressed, and "
                    "sessions send only while the job calls them",
         {rank.rank}});
    for (const std::string& error : rank.errors) {
      findings.push_back({Severity::warning, "doctor", error, "the checks that need this were left out", {rank.rank}});
    }
  }
}

void find_in_settings(const std::vector<Facts>& facts, Findings& findings) {
  find_in_policies(facts, findings);
  find_in_keys(facts, findings);
  find_in_addresses(facts, findings);
  find_in_variables(facts, findings);
}

}  // namespace gradwire::doctor
