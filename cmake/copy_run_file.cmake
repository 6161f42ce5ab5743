# Copy the installer from the folder FROM to the folder TO. CANN's template has packed the installer and has named it
# after the operating system.
file(GLOB installers "${FROM}/custom_opp_*.run")
list(LENGTH installers count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${FROM} must hold one custom_opp_*.run but holds ${count}.")
endif()
file(COPY ${installers} DESTINATION "${TO}")
