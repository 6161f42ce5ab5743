// Files from outside. A lack of memory throws std::bad_alloc, so that it is not taken for another fault.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace simulated_cann {

// An open file, or none.
struct File {
    int number = -1;

    File() = default;
    // Opens the file, if that is possible. Needs no memory of the process.
    File(const char* path, int flags) : number(::open(path, flags | O_CLOEXEC, 0600)) {
        if (number < 0 && errno == ENOMEM) throw std::bad_alloc();
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    File& operator=(File&& other) noexcept {
        std::swap(number, other.number);
        return *this;
    }
    ~File() {
        if (number >= 0) ::close(number);
    }
    bool is_open() const { return number >= 0; }
};

// Reads the whole file, or the start of a file that is longer than `limit`: then at least one byte more than that.
// Returns nullopt if the file cannot be read.
inline std::optional<std::string> read_from(const File& file, size_t limit = SIZE_MAX) {
    std::string content;
    char chunk[4096];
    while (content.size() <= limit) {
        const ssize_t bytes = ::read(file.number, chunk, sizeof(chunk));
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0 && errno == ENOMEM) throw std::bad_alloc();
        if (bytes < 0) return std::nullopt;
        if (bytes == 0) break;
        content.append(chunk, static_cast<size_t>(bytes));
    }
    return content;
}

inline std::optional<std::string> read_file(const std::string& path) { return read_from(File(path.c_str(), O_RDONLY)); }

// Returns nullopt if the file is not regular or cannot be read.
inline std::optional<std::string> read_regular_file(const std::string& path) {
    const File file(path.c_str(), O_RDONLY | O_NONBLOCK);  // a FIFO is opened at once
    struct stat status{};
    if (!file.is_open() || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return read_from(file);
}

// Returns the path without symbolic links, or "" if there is no such file.
inline std::string resolved_path(const std::string& path) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(path, error);
    if (error == std::errc::not_enough_memory) throw std::bad_alloc();
    return error ? std::string() : resolved.string();
}

}  // namespace simulated_cann
