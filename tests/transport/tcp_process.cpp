// One process of a job, for tests that kill and stop processes and break their connections:
// `tcp_process FOLDER RANK SIZE [agent] [trust] [interface=NAME]`. The processes find each other by files in FOLDER.
// Each prints what it hears, and follows the commands on its standard input: say TO TEXT, bulk TO TEXT, enter EPOCH,
// count STEP, end, fork, exit.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

#include "transport/tcp/tcp_processes.hpp"
#include "transport/witness/agent.hpp"

namespace {

using namespace gradwire;
namespace fs = std::filesystem;

transport::Rendezvous files_in(const fs::path& folder) {
  const auto file_of = [folder](std::string key) {
    std::ranges::replace(key, '/', '_');
    return folder / key;
  };
  return {.put =
              [file_of](const std::string& key, const std::string& value) {
                const fs::path file = file_of(key);
                std::ofstream(file.string() + ".new") << value;
                fs::rename(file.string() + ".new", file);
              },
          .get =
              [file_of](const std::string& key, std::chrono::milliseconds limit) {
                const auto until = std::chrono::steady_clock::now() + limit;
                while (!fs::exists(file_of(key))) {
                  if (std::chrono::steady_clock::now() > until) {
                    throw std::runtime_error("nothing is stored as " + key);
                  }
                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                }
                std::ostringstream text;
                text << std::ifstream(file_of(key)).rdbuf();
                return text.str();
              }};
}

void print(const Processes::Heard& one) {
  std::ostringstream line;
  line << one.from << ' ';
  if (one.ended) {
    line << "ended in " << one.epoch << " at " << one.step;
  } else if (one.lost || one.back) {
    line << (one.lost ? "lost" : "back");
  } else {
    line << std::string(reinterpret_cast<const char*>(one.message.data()), one.message.size());
  }
  std::printf("%s\n", line.str().c_str());
  std::fflush(stdout);
}

bool act(Processes& processes, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::uint64_t number = 0;
  std::string text;
  words >> what >> number >> text;
  if (what == "say" || what == "bulk") {
    processes.send(static_cast<Processes::Id>(number), std::as_bytes(std::span(text)),
                   what == "say" ? Processes::Lane::prompt : Processes::Lane::bulk);
  } else if (what == "enter") {
    processes.enter(static_cast<std::uint32_t>(number));
  } else if (what == "count") {
    processes.count(number);
  } else if (what == "end") {
    processes.end();
  } else if (what == "fork") {
    if (const pid_t child = ::fork(); child == 0) {
      ::sleep(60);
      ::_exit(0);
    } else {
      std::printf("forked %d\n", child);
      std::fflush(stdout);
    }
  }
  return what != "exit";
}

}  // namespace

int main(int argc, char** argv) try {
  transport::TcpOptions options{.rank = std::stoi(argv[2]), .world_size = std::stoi(argv[3])};
  options.timeout = std::chrono::seconds(20);
  transport::ProcessesOptions more;
  bool trusts = false;
  for (int i = 4; i < argc; ++i) {
    const std::string option = argv[i];
    trusts = trusts || option == "trust";
    if (option == "agent") {
      more.agent = transport::witness::Agent::start();
    } else if (option.starts_with("interface=")) {
      options.interface = option.substr(10);
    }
  }
  const auto processes = transport::make_tcp_processes(files_in(argv[1]), options, std::move(more));
  if (trusts) {
    processes->trust_resets();
  }
  std::thread([processes] {
    for (;;) {
      for (const Processes::Heard& one : processes->hear(std::chrono::milliseconds(50))) {
        print(one);
      }
    }
  }).detach();
  std::printf("began %d\n", ::getpid());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && act(*processes, line);) {
  }
  ::_exit(0);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
