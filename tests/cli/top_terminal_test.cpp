// Tests gradwire top in a pseudo-terminal, and without one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "cli/tool.hpp"
#include "support/scratch_folder.hpp"
#include "watch/live/terminal.hpp"
#include "watch/textfile.hpp"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A terminal that knows the few codes that gradwire top uses. It reports a failure for a line that is too long, or for
/// a newline.
class Screen {
 public:
  explicit Screen(std::size_t columns, std::size_t rows) : columns_(columns), lines_(rows) {}

  void take(std::string_view bytes) {
    pending_ += bytes;
    std::size_t at = 0;
    while (at < pending_.size()) {
      if (pending_[at] != '\x1b') {
        EXPECT_TRUE(pending_[at] >= ' ' && pending_[at] <= '~') << "byte " << int{pending_[at]};
        EXPECT_LE(lines_.at(row_).size() + 1, columns_) << lines_.at(row_);
        lines_.at(row_) += pending_[at++];
        continue;
      }
      const std::size_t end = pending_.find_first_of("ABCDHJKhlm", at);
      if (end == std::string::npos) {
        break;  // the rest is still to come
      }
      obey(pending_.substr(at + 2, end - at - 2), pending_[end]);
      at = end + 1;
    }
    pending_.erase(0, at);
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const std::string& line : lines_) {
      text += line + "\n";
    }
    return text;
  }
  [[nodiscard]] bool other() const { return other_; }
  [[nodiscard]] bool cursor() const { return cursor_; }

 private:
  void obey(const std::string& numbers, char what) {
    if (what == 'H') {
      row_ = numbers.empty() ? 0 : static_cast<std::size_t>(std::atoi(numbers.c_str())) - 1;
      ASSERT_LT(row_, lines_.size());
    } else if (what == 'K') {
      lines_.at(row_).clear();
    } else if (what == 'J') {
      std::fill(lines_.begin() + static_cast<std::ptrdiff_t>(row_), lines_.end(), "");
    } else if (numbers == "?1049") {
      other_ = what == 'h';
    } else if (numbers == "?25") {
      cursor_ = what == 'h';
    }
  }

  std::size_t columns_;
  std::vector<std::string> lines_;
  std::size_t row_ = 0;
  std::string pending_;
  bool other_ = false;
  bool cursor_ = true;
};

/// A process with a terminal of its own.
class AtATerminal {
 public:
  AtATerminal(unsigned short columns, unsigned short rows, const std::function<int()>& body) : screen_(columns, rows) {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    int terminal = -1;
    EXPECT_EQ(::openpty(&master_, &terminal, nullptr, nullptr, &size), 0);
    before_ = mode();  // before the program may change it
    child_ = ::fork();
    if (child_ == 0) {
      ::alarm(60);
      ::close(master_);
      ::login_tty(terminal);
      ::setenv("TERM", "xterm", 1);
      std::_Exit(body());
    }
    EXPECT_GT(child_, 0);
    ::close(terminal);
  }
  ~AtATerminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(master_);
  }
  AtATerminal(const AtATerminal&) = delete;
  AtATerminal& operator=(const AtATerminal&) = delete;

  [[nodiscard]] termios mode() const {
    termios mode{};
    EXPECT_EQ(::tcgetattr(master_, &mode), 0);
    return mode;
  }
  /// Returns whether the mode is as it was before the program began.
  [[nodiscard]] bool is_restored() const {
    const termios now = mode();
    return now.c_lflag == before_.c_lflag && now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag &&
           std::memcmp(now.c_cc, before_.c_cc, sizeof now.c_cc) == 0;
  }
  /// Reads until `holds` returns true; returns false after 20 s.
  [[nodiscard]] bool reads_until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) > 0) {
        char bytes[4096];
        const ssize_t got = ::read(master_, bytes, sizeof bytes);
        if (got > 0) {
          screen_.take({bytes, static_cast<std::size_t>(got)});
        }
      }
    }
    return true;
  }
  [[nodiscard]] bool shows(const std::string& text) {
    return reads_until([&] { return screen_.text().find(text) != std::string::npos; });
  }
  /// Does the same for a whole picture, which ends with this line.
  [[nodiscard]] bool shows_all_of(const std::string& text) { return shows(text) && shows("q quits"); }
  void type(const std::string& keys) const {
    EXPECT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void resize(unsigned short columns, unsigned short rows) {
    screen_ = Screen(columns, rows);
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
  }
  /// Returns its end as waitpid reports it; -1 if it does not end.
  [[nodiscard]] int ends() {
    int status = -1;
    if (!reads_until([&] { return ::waitpid(child_, &status, WNOHANG) == child_; })) {
      return -1;
    }
    child_ = -1;
    EXPECT_TRUE(reads_until([&] { return !screen_.other() && screen_.cursor(); })) << "the screen is not given back";
    EXPECT_TRUE(is_restored()) << "the terminal's mode is not given back";
    return status;
  }
  [[nodiscard]] pid_t child() const { return child_; }
  [[nodiscard]] Screen& screen() { return screen_; }

 private:
  pid_t child_ = -1;
  int master_ = -1;
  termios before_{};
  Screen screen_;
};

void write_rank(const std::filesystem::path& folder, int rank, int steps, double exposed, bool ended = false) {
  watch::RankTotals totals;
  totals.world_size = 4;
  SessionStatistics::Group group;
  group.name = "default";
  group.codec = "int8";
  group.totals.bytes_in = 4000;
  group.totals.bytes_sent = group.totals.bytes_inter = 1000;
  group.totals.bytes_uncompressed = 3900;
  totals.gone.steps = static_cast<std::uint64_t>(steps);
  totals.gone.groups = {group};
  for (int i = 0; i < steps; ++i) {
    totals.seconds[observe::EventKind::step_end].add(0.1 * exposed);
    if (i > 0) {
      totals.steps.add(0.1);
    }
  }
  watch::ReaderState reader;
  reader.ended = ended;
  watch::write_whole(
      folder, watch::file_name("library", rank),
      watch::to_text(watch::families(totals, reader, {}), {{"part", "library"}, {"rank", std::to_string(rank)}}));
}

class Top : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 4; ++rank) {
      write_rank(folder_.path(), rank, 50, rank == 2 ? 0.05 : 0.45);
    }
  }
  [[nodiscard]] static std::function<int()> on(const std::filesystem::path& folder, const char* interval = "100ms") {
    return [folder, interval] {
      const std::string program = std::string(GRADWIRE_BIN) + "/gradwire";
      ::execl(program.c_str(), program.c_str(), "top", folder.c_str(), "--interval", interval, nullptr);
      return 99;
    };
  }
  [[nodiscard]] std::function<int()> command() const { return on(folder_.path()); }
  [[nodiscard]] static Outcome plain(const std::string& arguments) {
    return run_program("timeout -k 5 60 " + std::string(GRADWIRE_BIN) + "/gradwire top " + arguments);
  }

  ScratchFolder folder_;
};

TEST_F(Top, DrawsOnATerminalUntilQIsTyped) {
  AtATerminal top(80, 24, command());
  ASSERT_TRUE(top.shows("q quits")) << top.screen().text();
  EXPECT_TRUE(top.screen().other());
  EXPECT_FALSE(top.screen().cursor());
  EXPECT_EQ(top.mode().c_lflag & (ICANON | ECHO), 0U);
  EXPECT_THAT(top.screen().text(),
              AllOf(HasSubstr("gradwire top: 4 of 4 ranks, 1 slow  /"), HasSubstr("\n   2  slow       10.0       5%"),
                    HasSubstr("since the start"), HasSubstr("Rank 2 is slow: the others wait for it.\n")));
  write_rank(folder_.path(), 2, 60, 0.5);
  const auto has = [&top](const char* text) { return top.screen().text().find(text) != std::string::npos; };
  EXPECT_TRUE(top.reads_until([&] { return has("4 of 4 ranks  /") && has("q quits") && !has("slow"); }))
      << "a part of the previous picture is left: " << top.screen().text();
  top.type("xyz");
  write_rank(folder_.path(), 3, 70, 0.5, true);
  ASSERT_TRUE(top.shows("   3  ended")) << top.screen().text();
  top.type("q");
  const int status = top.ends();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Top, FollowsTheSizeOfTheTerminal) {
  for (int rank = 4; rank < 40; ++rank) {
    write_rank(folder_.path(), rank, 50, 0.45);
  }
  AtATerminal top(80, 24, on(folder_.path(), "60min"));  // only SIGWINCH makes it draw
  ASSERT_TRUE(top.shows_all_of("and 22 more")) << top.screen().text();
  top.resize(40, 12);
  ASSERT_TRUE(top.shows_all_of("and 34 more")) << top.screen().text();
  top.resize(132, 50);
  ASSERT_TRUE(top.shows_all_of("\n  39  ")) << top.screen().text();
  EXPECT_THAT(top.screen().text(), HasSubstr("  dropped\n"));
  top.type("q");
  EXPECT_EQ(top.ends(), 0);
}

TEST_F(Top, GivesTheTerminalBackWhenASignalEndsIt) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    AtATerminal top(80, 24, command());
    ASSERT_TRUE(top.shows("q quits"));
    if (signal == SIGINT) {
      top.type("\x03");
    } else {
      ::kill(top.child(), signal);
    }
    const int status = top.ends();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }
}

TEST_F(Top, GivesTheTerminalBackWhileItIsStopped) {
  AtATerminal top(80, 24, command());
  ASSERT_TRUE(top.shows("q quits"));
  top.type("\x1a");
  int status = 0;
  ASSERT_TRUE(top.reads_until([&] { return ::waitpid(top.child(), &status, WNOHANG | WUNTRACED) == top.child(); }));
  EXPECT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(top.reads_until([&] { return !top.screen().other(); }));
  EXPECT_TRUE(top.is_restored());
  ::kill(top.child(), SIGCONT);
  ASSERT_TRUE(top.reads_until([&] { return top.screen().other() && (top.mode().c_lflag & ICANON) == 0; }));
  ASSERT_TRUE(top.shows("q quits"));
  top.type("q");
  EXPECT_EQ(top.ends(), 0);
}

TEST_F(Top, GivesTheTerminalBackWhenAnErrorEndsIt) {
  AtATerminal failing(80, 24, [] {
    try {
      watch::live::Terminal terminal;
      terminal.show(std::vector<watch::live::StyledLine>{{"shown", watch::live::Emphasis::none}});
      throw std::runtime_error("planted");
    } catch (const std::runtime_error&) {
      return 3;
    }
  });
  const int status = failing.ends();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
}

TEST_F(Top, WaitsForAJobThatHasNotBegun) {
  const ScratchFolder empty;
  AtATerminal top(80, 24, on(empty.path()));
  ASSERT_TRUE(top.shows("GRADWIRE_METRICS=file:")) << top.screen().text();
  write_rank(empty.path(), 0, 5, 0.4);
  ASSERT_TRUE(top.shows("1 of 4 ranks")) << top.screen().text();
  std::filesystem::remove_all(empty.path());
  ASSERT_TRUE(top.shows("is not there")) << top.screen().text();
  top.type("q");
  EXPECT_EQ(top.ends(), 0);
}

TEST_F(Top, WaitsForADirectoryThatIsNotThereYet) {
  const ScratchFolder parent;
  const std::filesystem::path folder = parent.path() / "metrics";
  AtATerminal top(80, 24, on(folder));
  ASSERT_TRUE(top.shows("is not there")) << top.screen().text();
  std::filesystem::create_directory(folder);
  write_rank(folder, 0, 5, 0.4);
  ASSERT_TRUE(top.shows("1 of 4 ranks")) << top.screen().text();
  top.type("q");
  EXPECT_EQ(top.ends(), 0);
}

TEST_F(Top, PrintsPlainLinesWhereThereIsNoTerminal) {
  const Outcome once = plain(folder_.path().string() + " --once");
  EXPECT_EQ(once.status, 0) << once.output;
  EXPECT_THAT(once.output,
              AllOf(HasSubstr("gradwire top: 4 of 4 ranks, 1 slow  /"), HasSubstr("\n   2  library  slow "),
                    Not(HasSubstr("\x1b")), Not(HasSubstr("q quits"))));
  const Outcome blocks = run_program("timeout -s INT 2 " + std::string(GRADWIRE_BIN) + "/gradwire top " +
                                     folder_.path().string() + " --interval 200ms");
  std::size_t number = 0;
  for (std::size_t at = 0; (at = blocks.output.find("gradwire top: 4 of 4", at)) != std::string::npos; ++at) {
    ++number;
  }
  EXPECT_GE(number, 3U) << blocks.output;
  EXPECT_LE(number, 11U);
  EXPECT_THAT(blocks.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(run_program("TERM=dumb timeout 20 script -qec '" + std::string(GRADWIRE_BIN) + "/gradwire top " +
                          folder_.path().string() + " --once' /dev/null </dev/null")
                  .output,
              Not(HasSubstr("\x1b")));
}

TEST_F(Top, SaysWhatIsMissingAndWhatToDo) {
  const Outcome missing = plain(folder_.file("none") + " --once");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.output,
              HasSubstr("gradwire: top: " + folder_.file("none") + " is not there; name the directory"));
  const ScratchFolder empty;
  const Outcome nothing = plain(empty.path().string() + " --once");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.output, HasSubstr("start the job with GRADWIRE_METRICS=file:" + empty.path().string()));
  for (const char* interval : {"1ms", "2", "fast", "61min"}) {
    const Outcome wrong = plain(empty.path().string() + " --interval " + interval);
    EXPECT_EQ(wrong.status, 2) << interval;
    EXPECT_THAT(wrong.output, AllOf(HasSubstr(interval), HasSubstr("--interval")));
  }
  for (const char* place :
       {"http:99999", "http:host:9464", "unix:", "otlp:/a", "file:/a,http:9464", "file:/a,unix:/b"}) {
    const Outcome wrong = plain(std::string(place) + " --once");
    EXPECT_EQ(wrong.status, 2) << place;
    EXPECT_THAT(wrong.output, HasSubstr("gradwire: top: \"" + std::string(place) + "\" is not one place of metrics"));
  }
  EXPECT_THAT(plain("http:1 --once").output, AllOf(HasSubstr("127.0.0.1:1: nobody serves metrics there"),
                                                   HasSubstr("name the address of the job's GRADWIRE_METRICS=http:")));
  EXPECT_THAT(plain("").output, HasSubstr("directory is required"));
}

}  // namespace
}  // namespace gradwire::test
