// Files from outside. A lack of memory throws std::bad_alloc, so that it is not taken for another fault.
#pragma once

#include <fcntl.h>
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
    File(const std::string& path, int flags) : number(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
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
inline std::optional<std::string> read_file(const std::string& path, size_t limit = SIZE_MAX) {
    const File file(path, O_RDONLY);
    std::string content;
    char chunk[4096];
    while (file.is_open() && content.size() <= limit) {
        const ssize_t bytes = ::read(file.number, chunk, sizeof(chunk));
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) break;
        if (bytes == 0) return content;
        content.append(chunk, static_cast<size_t>(bytes));
    }
    if (content.size() > limit) return content;
    if (errno == ENOMEM) throw std::bad_alloc();
    return std::nullopt;
}

// Returns the path without symbolic links, or "" if there is no such file.
inline std::string resolved_path(const std::string& path) {
    std::error_code error;
    const std::filesystem::path resolved = std::filesystem::canonical(path, error);
    if (error == std::errc::not_enough_memory) throw std::bad_alloc();
    return error ? std::string() : resolved.string();
}

}  // namespace simulated_cann
