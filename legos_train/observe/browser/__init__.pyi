from .catalog import holds_several as holds_several
from .folder_page import write_folder_page as write_folder_page
from .folder_server import serve_folder as serve_folder
